"""How a view is computed, from what its node has noted."""

from pathlib import Path

from click.testing import CliRunner

from penstock.cli import cli
from tests.runtime.kept import CUSTOMERS, OPERATOR, a_node_that_ran


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
    folder.advance()
    failed = CliRunner().invoke(cli, ["explain", "totals", "--data", str(tmp_path)])
    assert (failed.exit_code, "has not begun" in failed.stderr) == (1, True)
