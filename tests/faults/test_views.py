"""An app with views, killed while it works: what can be read stays whole, and nothing is twice."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.runtime.views import Views
from penstock.testing import wait_until
from tests.cli.running import Running, ended_server, run

APP = """
import penstock as ps

app = ps.App("shop", buckets=2)
app.stream("orders", "id long, country string", partitions=2, max_rows=40)


@app.view("counts", key="country", versions="1 day")
def counts(orders):
    return ps.aggregate(orders, by="country", orders=ps.count())


@app.view("sizes", key="orders")
def sizes(counts):
    return ps.aggregate(counts, by="orders", countries=ps.count())
"""
PATIENT = 300.0
SPARK = ("--spark", "local[2]")


def fold(log: Log, topic: str) -> dict[bytes | None, object]:
    """What a topic of upserts comes to."""
    rows: dict[bytes | None, object] = {}
    for partition in range(len(log.describe(topic).partitions)):
        for record in log.read(topic, partition, 0):
            if record.value is not None:
                rows[record.key] = json.loads(record.value)
            elif not record.headers:
                rows.pop(record.key, None)
    return rows


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_and_started_again(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    data = tmp_path / "penstock-data"
    views = Views(data, "shop")
    countries = [f"C{number * 7 % 23}" for number in range(400)]
    orders = [
        Record(key=country.encode(), value=json.dumps({"id": n, "country": country}).encode())
        for n, country in enumerate(countries)
    ]
    with ended_server(data):
        with Log.join(data) as log:
            log.create("orders", partitions=2)
            log.append("orders", orders[:200])
        with Running("run", "app.py", "--port", "0", *SPARK, cwd=tmp_path) as app:

            def began() -> bool:
                return "counts" in views and any(views["counts"].rows())

            wait_until(began, within=PATIENT, what=f"the first rows: {app.text}")
            assert "views are served at http://127.0.0.1:" in app.text
            os.kill(app.pid, signal.SIGKILL)
            app.wait(PATIENT)
        # Whatever it came to: the state after one batch.
        seen = {row["country"]: row["orders"] for row in views["counts"].rows()}
        assert 0 < sum(seen.values()) <= 200
        assert Counter(countries[:200]) >= Counter(seen)

        with Log.join(data) as log:
            log.append("orders", orders[200:])
        again = run("run", "app.py", "--once", *SPARK, cwd=tmp_path, within=PATIENT)
        assert again.returncode == 0, again.stderr
        truth = Counter(countries)
        assert {row["country"]: row["orders"] for row in views["counts"].rows()} == truth
        sizes = {row["orders"]: row["countries"] for row in views["sizes"].rows()}
        assert sizes == Counter(truth.values())
        with Log.join(data) as log:
            for view in ("counts", "sizes"):
                rows = sorted(map(str, views[view].rows()))
                assert rows == sorted(map(str, fold(log, view).values()))

        # Versions: each row was valid from its beginning until the next one, without gaps.
        history = run("query", "select * from counts_versions", "--json", cwd=tmp_path).stdout
        lives: dict[str, list[tuple[str, str | None]]] = {}
        for line in map(json.loads, history.splitlines()):
            lives.setdefault(line["country"], []).append((line["valid_from"], line["valid_to"]))
        for spans in lives.values():
            spans.sort()
            ends = [end for _, end in spans]
            assert ends[:-1] == [begin for begin, _ in spans[1:]]
            assert ends[-1] is None

        rebuilt = run("rebuild", "counts", *SPARK, cwd=tmp_path, within=PATIENT)
        assert rebuilt.returncode == 0, rebuilt.stderr
        assert "counts: version 2 is shown" in rebuilt.stdout
        assert {row["country"]: row["orders"] for row in views["counts"].rows()} == truth
        assert {row["orders"]: row["countries"] for row in views["sizes"].rows()} == sizes
