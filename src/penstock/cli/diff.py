"""`penstock diff`: what came, went and changed in a view."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from penstock.cli.chosen import node_options, views_of
from penstock.cli.display import left, plural, show, table
from penstock.cli.query import SHOWN_ROWS, cell, time_or_position
from penstock.serve.catalog import Kept
from penstock.serve.past import Difference, Row
from penstock.serve.reading import opened

_SIGNS = {"came": ("+", "green"), "went": ("-", "red"), "changed": ("~", "yellow")}


@click.command()
@click.argument("view")
@click.option("--from", "begin", required=True, metavar="TIME|POSITION", help="As it was then.")
@click.option("--to", "end", metavar="TIME|POSITION", help="As it was then.  [default: now]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each row.")
@node_options
def command(
    view: str, begin: str, end: str | None, as_json: bool, app: str | None, data: Path
) -> None:
    """Show which rows of VIEW came (+), went (-) or changed (~) between two moments.

    A moment is a time, a duration, which is so long ago, or a position of the view's topic or of
    one that its node reads. The view has to keep versions.

    \b
    Examples:
      penstock diff revenue --from 10m
      penstock diff revenue --from 2026-01-31T10:00 --to 2026-01-31T11:00
      penstock diff revenue --from orders/0@17 --json
    """
    views = views_of(data, app)
    with opened(views.path) as reader:
        kept = reader.find(view)
        first = views.batch_at(reader, kept, time_or_position(begin))
        last = kept.batch if end is None else views.batch_at(reader, kept, time_or_position(end))
        if first > last:
            raise click.UsageError("--from is later than --to.")
        differences = reader.differences(kept, first, last)
        if as_json:
            for each in differences:
                click.echo(json.dumps(_as_object(kept, each)))
            return
        limit = SHOWN_ROWS if sys.stdout.isatty() else None
        shown = list(islice(differences, limit))
        counts = Counter(map(_kind, shown))
        if shown:
            show(_grid(kept, shown))
        counts.update(map(_kind, differences))
    hidden = counts.total() - len(shown)
    said = ", ".join(f"{plural(counts[kind], 'row')} {kind}" for kind in _SIGNS if counts[kind])
    more = f", {hidden} of them not shown: --json writes all" if hidden else ""
    click.echo(f"{said}{more}" if said else "nothing changed", err=True)


def _kind(each: Difference) -> str:
    if each.before is None:
        return "came"
    return "went" if each.after is None else "changed"


def _grid(kept: Kept, differences: Sequence[Difference]) -> Table:
    whole = table(left(""), *(left(column.name) for column in kept.columns))
    for each in differences:
        sign, style = _SIGNS[_kind(each)]
        whole.add_row(Text(sign, style=style), *map(_change, *_both(each)))
    return whole


def _both(each: Difference) -> tuple[Row, Row]:
    """Where there is nothing to compare with, the row itself."""
    before, after = each.before or each.after, each.after or each.before
    assert before is not None
    assert after is not None
    return before, after


def _change(before: Any, after: Any) -> Text:
    if before == after:
        return cell(after)
    return Text.assemble(cell(before), (" → ", "dim"), cell(after))


def _as_object(kept: Kept, each: Difference) -> dict[str, Any]:
    def row(values: Row | None) -> dict[str, Any] | None:
        return None if values is None else kept.as_json(values)

    return {"change": _kind(each), "before": row(each.before), "after": row(each.after)}
