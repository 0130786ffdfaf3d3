"""How a view is computed, from what its node has noted, and how an app is."""

from pathlib import Path

from click.testing import CliRunner

from penstock.cli import cli
from penstock.runtime.folders import app_folder
from penstock.runtime.status import AppStatus
from tests.runtime.kept import CUSTOMERS, OPERATOR, STATE, a_node_that_ran


def explained(data: Path) -> str:
    done = CliRunner().invoke(cli, ["explain", "totals", "--data", str(data)])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_a_plan_with_what_its_parts_keep(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path)
    folder.plan.write_text(
        f"project total\n└─ aggregate by customer  [{OPERATOR}]\n"
        "   └─ filter tags[0] = '  [x]'\n      └─ scan orders: customer\nnote: ORDER BY\x1b[2J"
    )
    first, second, *rest = explained(tmp_path).splitlines()
    assert first == "project total"
    assert second.startswith(f"└─ aggregate by customer  [{CUSTOMERS} rows, ")
    assert rest == [
        "   └─ filter tags[0] = '  [x]'",
        "      └─ scan orders: customer",
        "note: ORDER BY\\x1b[2J",
    ]


def test_a_function(tmp_path: Path) -> None:
    a_node_that_ran(tmp_path)
    text = explained(tmp_path)
    assert text.startswith("totals is a function of orders\n\ntotals: 2 buckets\n")
    assert OPERATOR in text


def test_nodes_that_have_not_begun(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path)
    folder.begin(folder.generation + 1)
    failed = CliRunner().invoke(cli, ["explain", "totals", "--data", str(tmp_path)])
    assert (failed.exit_code, "has not begun" in failed.stderr) == (1, True)


def test_an_app(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path)
    status = AppStatus.read(app_folder(tmp_path, "shop"))
    assert status is not None
    for node in status.nodes:
        node.query = "main"
    status.write(app_folder(tmp_path, "shop"))
    shared = {"level": 1, "name": STATE, "key": ["customer"], "reads": ["orders"]}
    folder.query.draw(
        {
            "buckets": 2,
            "levels": 1,
            "jobs": 2,
            "sources": [{"name": "orders", "topic": "orders"}],
            "operators": [shared | {"nodes": ["a", "b", "c", "d", "totals"]}],
            "through_spark": [{"nodes": ["scored"], "columns": ["id"]}],
            "outputs": [{"node": "totals", "topic": "totals"}],
            "sinks": [],
        }
    )
    done = CliRunner().invoke(cli, ["explain", "shop", "--data", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert lines[:3] == [
        "shop: 1 node in 1 query",
        "query main: 1 level, 2 jobs a batch, 2 buckets",
        "reads orders",
    ]
    assert lines[4].split()[:4] == ["1", STATE, "customer", "orders"]
    assert f"a, b, c, d and 1 more   {CUSTOMERS}" in lines[4]
    assert lines[5:] == ["through Spark: scored", "writes totals"]
