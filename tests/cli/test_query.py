"""Reading views from the command line: what is asked, waited for, compared and refused."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock import Log
from penstock.cli import cli
from penstock.runtime.views import Views
from penstock.testing import wait_until
from tests.cli.running import OnTerminal
from tests.runtime.checkpoints import note
from tests.runtime.test_views import Shop

Ask = Callable[..., Result]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Log.open(tmp_path) as log:
        shop = Shop(log, tmp_path)
        shop.order()
        shop.process(0, 1, {"NL": {"total": 2.5, "orders": 1}, "NO": {"total": None, "orders": 7}})
        shop.project(versions_ms=60_000)
        yield shop


@pytest.fixture
def ask(shop: Shop) -> Ask:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--data", str(shop.folder)])

    return invoke


def test_as_a_table_as_json_and_as_csv(ask: Ask) -> None:
    whole = "select * from revenue order by country"
    assert ask("query", whole).stdout == (
        "country  total  orders\nNL         2.5       1\nNO        null       7\n"
    )
    lines = ask("query", whole, "--json").stdout.splitlines()
    assert json.loads(lines[1]) == {"country": "NO", "total": None, "orders": 7}
    assert ask("query", whole, "--csv").stdout == "country,total,orders\nNL,2.5,1\nNO,,7\n"
    nothing = ask("query", "select * from revenue where orders > 99")
    assert (nothing.stdout, nothing.stderr) == ("", "no rows\n")


def test_numbers_that_json_does_not_have(shop: Shop, ask: Ask) -> None:
    shop.process(1, 1, {"NL": {"total": "NaN"}, "NO": {"total": "-Infinity"}})
    shop.project(versions_ms=60_000)
    whole = "select country, total from revenue order by total"
    lines = ask("query", whole, "--json").stdout.splitlines()
    assert lines == [
        '{"country": "NO", "total": "-Infinity"}',
        '{"country": "NL", "total": "NaN"}',
    ]
    assert ask("query", whole, "--csv").stdout == "country,total\nNO,-Infinity\nNL,NaN\n"
    found = ask("query", "select country from revenue where total = 'NaN'", "--csv")
    assert found.stdout == "country\nNL\n"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("select * from revenu", "there is no view 'revenu'\n  hint: did you mean 'revenue'?"),
        ("select * from x", "hint: there are: revenue"),
        ("select land from revenue", "hint: revenue has country, total, orders"),
        ("select", "SQLite refuses the query: incomplete input"),
        ("select 1; select 2", "one statement"),
        ("delete from revenue", "views are only read here"),
        ('delete from "revenue@1"', "views are only read here"),
        ("attach 'other.db' as other", "too many attached"),
    ],
)
def test_what_cannot_be_asked(ask: Ask, sql: str, told: str) -> None:
    failed = ask("query", sql)
    assert failed.exit_code == 1
    assert told in failed.stderr


def test_a_row_cannot_steer_a_terminal(ask: Ask) -> None:
    assert ask("query", "select 'a' || char(27) || '[2J' as x from revenue limit 1").stdout == (
        "x\na\\x1b[2J\n"
    )


def test_an_app_without_views(tmp_path: Path) -> None:
    failed = CliRunner().invoke(cli, ["query", "select 1", "--data", str(tmp_path)])
    assert (failed.exit_code, failed.stderr.splitlines()[0]) == (
        1,
        f"error: no app has run in {tmp_path}",
    )


def test_after_a_position(shop: Shop, ask: Ask) -> None:
    assert ask("query", "select * from revenue", "--after", "orders/0@0").exit_code == 0
    late = ask("query", "select 1 from revenue", "--after", str(shop.order()), "--timeout", "50ms")
    assert late.exit_code == 1
    assert "orders/0@1 has not been seen within 0.05 s: node 'revenue'" in late.stderr
    wrong = ask("query", "select 1 from revenue", "--after", "orders")
    assert "'orders' is no position" in wrong.stderr


def test_what_was_waited_for_is_shown(
    shop: Shop, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = shop.order()

    def arrive(seconds: float) -> None:  # while the command waits
        shop.process(1, 2, {"NL": {"total": 9.0, "orders": 2}})
        shop.project(versions_ms=60_000)

    monkeypatch.setattr("penstock.clock.sleep", arrive)
    found = ask("query", "select total from revenue limit 1", "--after", str(position), "--csv")
    assert found.stdout == "total\n9.0\n"


def test_as_it_was_and_what_changed_since(shop: Shop, ask: Ask) -> None:
    before = shop.order()
    shop.publish(1, {"NL": {"total": 4.0, "orders": 2}, "NO": None, "SE": {"orders": 1}})
    note(shop.node, 1, {"orders": {0: (1, 2)}})
    shop.project(versions_ms=60_000)
    counted = "select count(*) as n, sum(orders) as orders from revenue"
    assert ask("query", counted, "--as-of", "orders/0@0", "--csv").stdout == "n,orders\n2,8\n"
    assert ask("query", counted, "--as-of", "0s", "--csv").stdout == "n,orders\n2,3\n"
    assert ask("query", counted, "--as-of", "2020-01-01", "--csv").stdout == "n,orders\n0,\n"

    found = ask("diff", "revenue", "--from", "orders/0@0")
    assert found.stdout == (
        "   country  total      orders\n"
        "~  NL       2.5 → 4.0  1 → 2\n"
        "-  NO       null       7\n"
        "+  SE       null       1\n"
    )
    assert found.stderr == "1 row came, 1 row went, 1 row changed\n"
    lines = ask("diff", "revenue", "--from", "orders/0@0", "--to", str(before), "--json").stdout
    assert [json.loads(line)["change"] for line in lines.splitlines()] == [
        "changed",
        "went",
        "came",
    ]
    assert "nothing changed" in ask("diff", "revenue", "--from", "0s").stderr
    backwards = ask("diff", "revenue", "--from", str(before), "--to", "orders/0@0")
    assert (backwards.exit_code, "later than" in backwards.stderr) == (2, True)


def test_what_is_no_moment(ask: Ask) -> None:
    for command in (("query", "select 1 from revenue", "--as-of"), ("diff", "revenue", "--from")):
        failed = ask(*command, "noon")
        assert failed.exit_code == 2
        assert "'noon' is neither a time nor a position" in failed.stderr


def test_other_apps_are_not_opened_where_one_is_named(shop: Shop, ask: Ask) -> None:
    other = Views(shop.folder, "other").path
    other.parent.mkdir(parents=True)
    other.write_text("no file of views, but long enough to be read as one: " + "x" * 100)
    found = ask("query", "select total from revenue limit 1", "--csv", "--app", "shop")
    assert (found.exit_code, found.stdout) == (0, "total\n2.5\n")


def test_views_without_versions(shop: Shop, ask: Ask) -> None:
    shop.project()
    for command in (("query", "select 1 from revenue", "--as-of"), ("diff", "revenue", "--from")):
        failed = ask(*command, "1m")
        assert failed.exit_code == 1
        assert 'hint: app.view("revenue", ..., versions="7 days")' in failed.stderr


ENDLESS = """
with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n, revenue
"""


def test_ctrl_c_ends_a_query(shop: Shop) -> None:
    with OnTerminal("query", ENDLESS, "--data", str(shop.folder)) as command:
        files = Path(f"/proc/{command.pid}/fd")
        wait_until(
            lambda: any("views.sqlite" in str(each.resolve()) for each in files.iterdir()),
            within=30,
            what="the query",
        )
        assert command.interrupt(signal.SIGINT) == 130
        assert "Traceback" not in command.text


def test_many_rows_on_a_terminal(shop: Shop) -> None:
    many = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 1200) "
    arguments = ("query", many + "select i from n", "--data", str(shop.folder))
    with OnTerminal(*arguments) as command:
        assert command.wait() == 0
        assert "and 200 more rows: --json and --csv write all" in command.plain


def test_rebuild_says_what_to_do(shop: Shop, ask: Ask) -> None:
    shop.tell(stopped=True)
    unknown = ask("rebuild", "revenue")
    assert "hint: name it: --file app.py" in unknown.stderr
    assert "did you mean 'revenue'?" in ask("rebuild", "revenu").stderr
