"""What values are distributed like, by the plainest of means, over all rows of a key at once."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tests.streams.algebra.oracle import Row, as_key, spark_order, unsigned_zeros


def there(rows: Sequence[Row], column: str, *, placed: bool = False) -> list[tuple[Any, Any]]:
    """Place and value of every row that is left, in that order, without nulls."""
    counts: dict[Any, int] = {}
    samples: dict[Any, tuple[Any, Any]] = {}
    for row in rows:
        value = unsigned_zeros(row[column])
        if value is None:
            continue
        place = _place(row) if placed else ()
        key = as_key([place, value])
        counts[key] = counts.get(key, 0) + row.get("_weight", 1)
        samples[key] = place, value
    left = [samples[key] for key, count in counts.items() for _ in range(count)]
    return sorted(left, key=lambda each: (each[0], spark_order(each[1])))


def _place(row: Row) -> tuple[Any, ...]:
    names = ["at"] if "_weight" in row else ["at", "_partition", "_offset"]
    return tuple(row[name] for name in names)


def stddev(rows: Sequence[Row], column: str) -> float | None:
    values = [value for _, value in there(rows, column)]
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = list(map(Fraction, values))
    mean = sum(exact) / len(exact)
    return math.sqrt(sum((each - mean) ** 2 for each in exact) / (len(exact) - 1))


def collect(rows: Sequence[Row], column: str, limit: int) -> Row:
    values = [value for _, value in there(rows, column, placed=True)]
    return {"values": values[:limit], "more": len(values[limit:])}


def distinct(rows: Sequence[Row], column: str) -> int:
    return len({as_key(value) for _, value in there(rows, column)})


def quantile(rows: Sequence[Row], column: str, q: Sequence[float]) -> list[Any] | None:
    values = [value for _, value in there(rows, column)]
    if not values:
        return None
    ranks = [max(math.ceil(Fraction(str(each)) * len(values)), 1) for each in q]
    return [values[rank - 1] for rank in ranks]


def top(rows: Sequence[Row], column: str, k: int, by: str | None = None) -> list[Row]:
    measure = "count" if by is None else "sum"
    found: dict[Any, Row] = {}
    for _, value in there(rows, column):
        found.setdefault(as_key(value), {"value": value, measure: 0})["count"] = 0
    for key, entry in found.items():
        of_value = [row for row in rows if as_key(unsigned_zeros(row[column])) == key]
        weights = [row.get("_weight", 1) for row in of_value]
        if by is None:
            entry["count"] = sum(weights)
        else:
            del entry["count"]
            pairs = [
                (row[by], w)
                for row, w in zip(of_value, weights, strict=True)
                if row[by] is not None
            ]
            total = sum(value * weight for value, weight in pairs)
            entry["sum"] = total if sum(weight for _, weight in pairs) else None
    ordered = sorted(found.values(), key=lambda each: spark_order(each["value"]))
    ordered.sort(key=lambda each: (each[measure] is not None, each[measure] or 0), reverse=True)
    return ordered[:k]


def histogram(rows: Sequence[Row], column: str, edges: Sequence[float]) -> list[int]:
    counts = [0] * (len(edges) + 1)
    for _, value in there(rows, column):
        over = math.isnan(value)
        counts[len(edges) if over else sum(float(value) >= edge for edge in edges)] += 1
    return counts


def end(rows: Sequence[Row], column: str, *, last: bool, placed: bool) -> Any:
    values = [value for _, value in there(rows, column, placed=placed)]
    return values[-1 if last else 0] if values else None
