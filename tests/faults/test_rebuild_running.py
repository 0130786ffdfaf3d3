"""`penstock rebuild` while the app runs and events come: the nodes named are built anew from the
file as it is now, the others go on, and a kill leaves the old version or the new one, whole."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock import Log
from penstock.errors import PenstockError
from penstock.runtime.query_folder import QueryFolder
from penstock.runtime.status import NodeStatus
from penstock.runtime.views import Views
from penstock.testing import wait_until
from tests.cli.running import Running, ended_server, run
from tests.faults.test_app_changes import (
    BASE,
    LARGEST,
    ODD,
    PATIENT,
    SPARK,
    THIRD,
    Orders,
    beside,
    order,
    queries,
)

HISTORY = [f"c{number % 7}" for number in range(10_000)]
# What reads `odd` is built anew with it, and is shown with it.
TWICE = """
app.view("twice", sql="SELECT customer, 2 * n AS n FROM odd")
"""
BEFORE, AFTER = BASE + ODD + TWICE, BASE + THIRD + TWICE


def begin(data: Path, file: Path) -> Orders:
    file.write_text(BEFORE)
    with Log.join(data) as log:
        log.create("orders", partitions=2)
        log.append("orders", map(order, range(len(HISTORY)), HISTORY))
    orders = Orders(data)
    orders.customers += HISTORY
    return orders


def node(views: Views, name: str) -> NodeStatus:
    return next(each for each in views.status().nodes if each.name == name)


def counted(views: Views, name: str) -> Counter[str]:
    return Counter({str(row["customer"]): int(row["n"]) for row in views[name].rows()})


def every(customers: list[str], step: int, first: int) -> Counter[str]:
    return Counter(customers[first::step])


def has_read_history(app: Running, views: Views) -> None:
    def has_come() -> bool:
        try:
            return counted(views, "counts").total() >= len(HISTORY) and "twice" in views
        except PenstockError:
            return False

    wait_until(has_come, within=PATIENT, what=f"the history in counts: {app.text}")


def check(views: Views, customers: list[str]) -> None:
    truth = Counter(customers)
    assert counted(views, "counts") == truth
    sizes = {row["n"]: row["customers"] for row in views["sizes"].rows()}
    assert sizes == Counter(truth.values())
    third = every(customers, 3, 0)
    assert counted(views, "odd") == third
    assert counted(views, "twice") == Counter({name: 2 * n for name, n in third.items()})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nodes_are_built_anew_while_the_others_go_on(tmp_path: Path) -> None:
    data, file = tmp_path / "penstock-data", tmp_path / "app.py"
    views = Views(data, "shop")
    with ended_server(data):
        orders = begin(data, file)
        with Running("run", "app.py", "--port", "0", *SPARK, cwd=tmp_path) as app:
            has_read_history(app, views)
            with beside(orders):
                # What cannot be done is refused, and nothing has happened.
                for text, names, said in (
                    ("1 / 0", ["odd"], "ZeroDivisionError"),
                    (AFTER, ["odds"], "did you mean 'odd'?"),
                    (AFTER.replace("count(*) AS customers", "sum(n) AS customers"), ["odd"], "too"),
                    (AFTER.replace("max_rows=500", "max_rows=400"), ["odd"], "counts reads it too"),
                    (AFTER.replace("AS n FROM odd", "AS n, x FROM odd"), ["odd"], "no column 'x'"),
                ):
                    file.write_text(text)
                    refused = run("rebuild", *names, cwd=tmp_path, within=PATIENT)
                    assert refused.returncode == 1, refused
                    assert said in refused.stderr
                assert {each.generation for each in views.status().nodes} == {1}

                file.write_text(AFTER + LARGEST)
                restarts = node(views, "counts").restarts
                with Running("rebuild", "odd", "largest", cwd=tmp_path) as rebuild:
                    building = wait_for_building(views, rebuild)
                    assert building.query.startswith("@beside")
                    assert building.to_build >= len(HISTORY)
                    main = {each.name for each in views.status().nodes if each.query == "main"}
                    assert main == {"counts", "sizes"}
                    # The others went on meanwhile, by one batch after the other.
                    assert len(batches_while_building(data)) > 2
                    assert rebuild.wait(PATIENT) == 0, rebuild.text + app.text
                    assert "odd: version 2 is shown" in rebuild.text
                    assert "twice: version 2 is shown" in rebuild.text
                    assert "largest: version 1 is shown, 3 rows" in rebuild.text
                assert queries(views) == {"main"}
                after = node(views, "counts")
                assert (after.generation, after.restarts) == (1, restarts)
            names = ["counts", "sizes", "odd", "twice", "largest"]
            views.wait(names, orders.last, "120s")
            check(views, orders.customers)
            assert app.interrupt(within=PATIENT) == 0, app.text
        with Log.join(data) as log:
            assert {"odd", "odd-v2", "twice-v2"} <= set(log.topics())
            assert "counts-v2" not in log.topics()


def batches_while_building(data: Path) -> set[int]:
    """The batches of the main query that were committed while another one was at work beside."""
    home, found = data / "apps" / "shop", set()
    beside = QueryFolder(home, "@beside-1")

    def is_over() -> bool:
        if beside.path.is_dir():
            found.add(QueryFolder(home, "main").committed)
        return not beside.path.is_dir()

    wait_until(is_over, within=PATIENT, what="the end of the query beside")
    return found


def wait_for_building(views: Views, rebuild: Running) -> NodeStatus:
    def is_building() -> bool:
        told = node(views, "odd")
        return told.generation == 2 and told.state == "building" and told.built > 0

    wait_until(is_building, within=PATIENT, what=f"odd being built: {rebuild.text}")
    return node(views, "odd")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["asked", "building"])
def test_a_kill_leaves_the_old_version_or_the_new_one(tmp_path: Path, moment: str) -> None:
    data, file = tmp_path / "penstock-data", tmp_path / "app.py"
    views = Views(data, "shop")
    with ended_server(data):
        orders = begin(data, file)
        with Running("run", "app.py", "--port", "0", *SPARK, cwd=tmp_path) as app:
            has_read_history(app, views)
            old = counted(views, "odd")
            assert old == every(HISTORY, 2, 1)
            file.write_text(AFTER)
            with beside(orders), Running("rebuild", "odd", cwd=tmp_path) as rebuild:
                if moment == "building":
                    wait_for_building(views, rebuild)
                else:
                    current = data / "apps" / "shop" / "odd" / "current"
                    wait_until(current.exists, within=PATIENT, what=rebuild.text)
                os.kill(app.pid, signal.SIGKILL)
                app.wait(PATIENT)
                assert rebuild.wait(PATIENT) == 1
                assert "has ended meanwhile" in rebuild.text
        shown, twice = counted(views, "odd"), counted(views, "twice")
        assert twice == Counter({name: 2 * n for name, n in shown.items()})
        assert old <= shown <= every(orders.customers, 2, 1)
        again = run("run", "app.py", "--once", *SPARK, cwd=tmp_path, within=PATIENT)
        assert again.returncode == 0, again.stderr
        check(views, orders.customers)
        assert node(views, "odd").generation == 2
