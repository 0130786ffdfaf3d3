"""Aggregates by the plainest of means, over all rows at once."""

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

Row = dict[str, Any]


def spark_order(value: Any) -> Any:
    """A value that Python compares as Spark compares this one."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, 1, 0.0) if math.isnan(value) else (1, 0, value)
    if isinstance(value, dict):
        return (1, *(spark_order(each) for each in value.values()))
    if isinstance(value, list | tuple):
        return (1, [spark_order(each) for each in value])
    if isinstance(value, str):
        return (1, value.encode())
    return (1, value)


def as_key(value: Any) -> Any:
    """Hashable, and equal where keys are: a NaN is one, and zeros have no sign."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, as_key(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(as_key(each) for each in value)
    return type(value).__name__, value


def unsigned_zeros(value: Any) -> Any:
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: unsigned_zeros(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(unsigned_zeros(each) for each in value)
    return value


def aggregated(
    rows: Sequence[Row], by: Sequence[str], aggregates: dict[str, tuple[str, str | None]]
) -> list[Row]:
    """One row for each key; `aggregates` gives for each name the kind and the column.

    Rows with a `_weight` count that often; `at`, `_partition` and `_offset` are their order.
    """
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(as_key([row[name] for name in by]), []).append(row)
    table = []
    for members in groups.values():
        if sum(row.get("_weight", 1) for row in members) == 0:
            continue
        made = {name: unsigned_zeros(members[0][name]) for name in by}
        for name, (kind, column) in aggregates.items():
            made[name] = _one(kind, column, members)
        table.append(made)
    return table


def _one(kind: str, column: str | None, rows: Sequence[Row]) -> Any:
    if column is None:
        return sum(row.get("_weight", 1) for row in rows)
    there = [row for row in rows if row[column] is not None]
    count = sum(row.get("_weight", 1) for row in there)
    if kind == "count":
        return count
    if kind in ("sum", "mean"):
        if count == 0:
            return None
        return _total([(row[column], row.get("_weight", 1)) for row in there], count, kind)
    if not there:
        return None
    if kind in ("min", "max"):
        pick = min if kind == "min" else max
        return pick((row[column] for row in there), key=spark_order)
    pick_row = min if kind == "first" else max
    return pick_row(there, key=lambda row: (*_place(row), spark_order(row[column])))[column]


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(spark_order(row[name]) for name in ("at", "_partition", "_offset") if name in row)


def _total(values: Sequence[tuple[Any, int]], count: int, kind: str) -> Any:
    if isinstance(values[0][0], float):
        weights: dict[str, int] = {}
        for value, weight in values:
            weights[repr(value)] = weights.get(repr(value), 0) + weight
        kept = [float(value) for value, weight in weights.items() for _ in range(weight)]
        if any(map(math.isnan, kept)) or {math.inf, -math.inf} <= set(kept):
            return math.nan
        odd = [value for value in kept if math.isinf(value)]
        total = odd[0] if odd else math.fsum(kept)
        return total if kind == "sum" else total / count
    with localcontext(prec=100):
        exact = sum(value * weight for value, weight in values)
        if kind == "sum":
            return exact
        if isinstance(exact, Decimal):
            places = Decimal(1).scaleb(values[0][0].as_tuple().exponent - 4)
            return (exact / count).quantize(places, ROUND_HALF_UP)
    return float(exact) / count
