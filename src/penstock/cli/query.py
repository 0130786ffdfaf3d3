"""`penstock query`: the views of an app, read by SQL."""

import csv
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from penstock.cli.chosen import node_options, views_of
from penstock.cli.display import left, plural, right, show, table
from penstock.cli.rendering import printable
from penstock.errors import InvalidInput
from penstock.events.record import Position
from penstock.serve.columns import json_value
from penstock.serve.moments import read_moment
from penstock.serve.positions import read_positions
from penstock.serve.reading import opened

SHOWN_ROWS = 1_000  # on a terminal


@click.command()
@click.argument("sql")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each row.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated, with a line of names.")
@click.option(
    "--after",
    metavar="POSITION",
    help="Wait until the views have seen it, such as orders/0@17; several with commas.",
)
@click.option(
    "--timeout", default="10s", show_default=True, help="Wait no longer than so for --after."
)
@click.option(
    "--as-of",
    metavar="TIME|POSITION",
    help="As the views were then, where they keep versions.",
)
@node_options
def command(
    sql: str,
    as_json: bool,
    as_csv: bool,
    after: str | None,
    timeout: str,
    as_of: str | None,
    app: str | None,
    data: Path,
) -> None:
    """Read the views of an app by SQL, in SQLite's dialect, whether the app runs or not.

    A query reads all its views in one transaction, each as it is after one batch, never half of
    one, and views of one group after the same batch. Times are text in UTC that sorts as it should,
    decimals are text, and arrays, maps and structs are JSON, which json_extract and json_each look
    into.

    \b
    Examples:
      penstock query "select * from revenue order by total desc limit 10"
      penstock query "select * from revenue" --json | jq .total
      penstock query "select * from revenue" --after orders/0@17
      penstock query "select * from revenue" --as-of 10m
    """
    if as_json and as_csv:
        raise click.UsageError("Give --json or --csv, not both.")
    views = views_of(data, app)
    if after:  # before the reader is opened whose answer is shown: what it sees does not change
        with opened(views.path) as reader:
            names = [kept.name for kept in reader.views_read(sql)]
        views.wait(names, read_positions(after), timeout)
    with opened(views.path) as reader:
        asked = reader.views_read(sql)
        when = None if as_of is None else time_or_position(as_of)
        past = (
            {}
            if when is None
            else {each.name: views.batch_at(reader, each, when) for each in asked}
        )
        names, rows = reader.select(sql, as_of=past)
        if as_json:
            for row in rows:
                click.echo(json.dumps(dict(zip(names, map(_plain, row), strict=True))))
        elif as_csv:
            lines = csv.writer(sys.stdout, lineterminator="\n")
            lines.writerow(names)
            lines.writerows([_plain(value) for value in row] for row in rows)
        else:
            _show(names, rows)


def time_or_position(text: str) -> int | Position:
    try:
        return read_moment(text)
    except InvalidInput as error:
        raise click.BadParameter(f"{error.message}: {error.hint}.") from None


def _show(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    limit = SHOWN_ROWS if sys.stdout.isatty() else None
    shown = list(islice(rows, limit))
    if not shown:
        click.echo("no rows", err=True)
        return
    show(grid(names, shown))
    more = sum(1 for _ in rows)
    if more:
        click.echo(f"and {plural(more, 'more row')}: --json and --csv write all", err=True)


def grid(names: list[str], rows: list[tuple[Any, ...]]) -> Table:
    """A table of values, numbers to the right."""
    numeric = [
        {type(row[at]) for row in rows} - {type(None)} in ({int}, {float}, {int, float})
        for at in range(len(names))
    ]
    whole = table(*(right(n) if is_n else left(n) for n, is_n in zip(names, numeric, strict=True)))
    for row in rows:
        whole.add_row(*map(cell, row))
    return whole


def cell(value: Any) -> Text:
    if value is None:
        return Text("null", style="dim")
    return Text(printable(str(_plain(value))))


def _plain(value: Any) -> Any:
    """As it stands in JSON."""
    match value:
        case bytes():
            return json_value(value, "bytes")
        case float():
            return json_value(value, "real")
        case _:
            return value
