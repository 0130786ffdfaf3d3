"""Running an app from the command line. Spark starts twice in here, so much is asked of each."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import Log, Record
from penstock.cli import cli
from penstock.cli.init import FILES
from penstock.testing import wait_until
from tests.cli.running import OnTerminal, ended_server, run

PATIENT = 240.0

FAILING = """

@app.derive("failing")
def failing(orders):
    from beside import check

    return orders.select(check("customer").alias("customer"))
"""
BESIDE = """
from pyspark.sql.functions import udf

@udf("long")
def check(customer):
    raise ConnectionError(f"customer {customer} is right out")
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import penstock\n", "app.py makes no app"),
        ("import penstock as ps\napp = ps.App('shop')\n", "app 'shop' has no nodes"),
        (FILES["app.py"].replace("(orders)", "(order)"), "node 'paid' asks for 'order'"),
        ("1 / 0\n", 'app.py", line 1, in <module>\n    1 / 0\n'),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "app.py").write_text(text)
    failed = CliRunner().invoke(
        cli, ["run", str(tmp_path / "app.py"), "--data", str(tmp_path / "data")]
    )
    assert failed.exit_code == 1
    assert told in failed.stderr
    assert not (tmp_path / "data").exists()


def test_unknown_nodes_to_build_anew(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FILES["app.py"])
    for option in ("--rebuild", "--reset"):
        arguments = ["run", str(tmp_path / "app.py"), option, "total", "--data", str(tmp_path)]
        failed = CliRunner().invoke(cli, arguments)
        assert failed.exit_code == 1
        assert f"{option} asks for 'total'" in failed.stderr
        assert not (tmp_path / "apps").exists()


def test_a_file_that_is_not_there() -> None:
    assert CliRunner().invoke(cli, ["run", "nothing.py"]).exit_code == 2


@pytest.mark.spark
@pytest.mark.timeout(500)
def test_once(tmp_path: Path) -> None:
    """From a folder that is not the app's own, in a pipe."""
    app = tmp_path / "shop" / "app.py"
    app.parent.mkdir()
    app.write_text(FILES["app.py"])
    data = tmp_path / "data"
    with ended_server(data):
        with Log.join(data) as log:
            log.create("orders", partitions=1)
            values = [*FILES["orders.jsonl"].encode().splitlines(), b"junk"]
            log.append("orders", [Record(value=value) for value in values])
        once = ("run", str(app), "--once", "--data", str(data), "--spark", "local[2]")
        done = run(*once, cwd=tmp_path, within=PATIENT)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == "shop: stopped"
        assert lines[3].split() == ["paid", "stopped", "4", "-", "0", "2026-01-31T09:59:56Z", "1"]
        assert lines[4].split() == ["totals", "stopped", "2", "-", "0", "2026-01-31T09:59:56Z", "0"]
        told = [line[9:] for line in done.stderr.splitlines() if " info " in line]
        assert told == [
            "info     starting Spark",
            "info     query main runs",
            "info     stopped",
        ]
        with Log.join(data) as log:
            partitions = range(len(log.describe("totals").partitions))
            totals = [record for number in partitions for record in log.read("totals", number, 0)]
        rows = [json.loads(record.value) for record in totals if record.value]
        assert rows == [{"customer": 7, "total": 6.5, "orders": 2}]

        again = run(*once, cwd=tmp_path, within=PATIENT)  # there is nothing to do
        assert again.returncode == 0
        assert "Exception" not in again.stderr
        assert "spark ERROR" not in again.stderr

        here = ("--data", str(data))
        assert run("status", *here).returncode == 0
        assert "1 unparsable" in run("why", "paid", *here).stdout
        kept = run("state", "totals", "customer=7", *here).stdout
        assert json.loads(kept)["orders"] == 2
        assert run("rescale", "totals", "3", *here).returncode == 0
        assert json.loads(run("state", "totals", "customer=7", *here).stdout)["orders"] == 2


@pytest.mark.spark
@pytest.mark.timeout(800)
def test_on_a_terminal_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(FILES["app.py"] + FAILING)
    (tmp_path / "beside.py").write_text(BESIDE)
    data = tmp_path / "penstock-data"
    arguments = ("run", "app.py", "--spark", "local[2]")
    with ended_server(data), OnTerminal(*arguments, cwd=tmp_path) as command:
        command.shows("starting Spark")
        command.shows("waiting", PATIENT)
        second = run(*arguments, cwd=tmp_path)
        assert second.returncode == 1
        assert "app 'shop' is running already, as process" in second.stderr
        orders = [Record(value=line) for line in FILES["orders.jsonl"].encode().splitlines()]
        with Log.join(data) as log:
            log.append("orders", orders)
        command.shows("ConnectionError: customer 7 is right out", PATIENT)
        command.shows("what Spark wrote: penstock-data/apps/shop/spark.log", PATIENT)
        status = run("status", cwd=tmp_path)
        assert status.returncode == 1
        assert "failing" in status.stdout

        def totals() -> bool:
            _ = command.text  # a terminal that is not read takes no more after a while
            nodes = json.loads(run("status", "--json", cwd=tmp_path).stdout)["nodes"]
            return any(node["name"] == "totals" and node["batch"] >= 0 for node in nodes)

        wait_until(totals, within=PATIENT, what="the first batch of totals")
        why = run("why", "failing", cwd=tmp_path).stdout
        assert "ConnectionError: customer 7 is right out" in why
        assert command.interrupt(within=PATIENT) == 1
        assert "stopped" in command.plain
        assert "Traceback" not in command.text
    assert "WARNING" in (data / "apps/shop/spark.log").read_text()  # as Java does
    assert run("status", cwd=tmp_path).returncode == 1
