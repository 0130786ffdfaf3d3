"""TUMBLE and HOP in FROM: a table with the windows over time that its rows are in."""

from typing import NamedTuple

from sqlglot import exp

from penstock.streams.sql.grouping import duration
from penstock.streams.sql.plan import Expr


class TableFunction(NamedTuple):
    table: exp.Table
    time: exp.Column
    size: str
    step: str | None


def table_function(node: exp.Table) -> TableFunction | None:
    """TUMBLE(TABLE t, DESCRIPTOR(at), size) or HOP(TABLE t, DESCRIPTOR(at), step, size)."""
    called = node.this
    if not isinstance(called, exp.Anonymous) or called.name.lower() not in ("tumble", "hop"):
        return None
    table, time, *sizes = called.expressions or [None]
    lengths = [duration(each) for each in sizes]
    is_hop = called.name.lower() == "hop"
    if not isinstance(table, exp.Column) or not _is_descriptor(time) or None in lengths:
        return None
    if len(lengths) != (2 if is_hop else 1):
        return None
    *step, size = lengths
    assert size is not None
    read = exp.Table(this=table.this.copy())
    return TableFunction(read, time.expressions[0], size, step[0] if step else None)


def _is_descriptor(node: Expr | None) -> bool:
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "descriptor":
        return False
    return len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Column)
