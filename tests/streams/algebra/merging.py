"""Summaries computed from rows in any cuts, whose parts are merged in any order."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.streams.algebra import Aggregate, Summary
from penstock.streams.algebra.rows.groups import group_rows
from tests.streams.algebra.batches import cut

Part = tuple[pa.RecordBatch, list[pa.Array]]  # keys, and the parts of each


def merged(summary: Summary, parts: Sequence[Part], chance: random.Random) -> Part:
    """Two at a time, whichever; one into the other, or both side by side."""
    left = list(parts)
    while len(left) > 1:
        one, other = (left.pop(chance.randrange(len(left))) for _ in range(2))
        left.append(
            _into(summary, one, other) if chance.random() < 0.5 else _both(summary, one, other)
        )
    return left[0]


def _both(summary: Summary, one: Part, other: Part) -> Part:
    groups = group_rows(pa.concat_batches([one[0], other[0]]))
    parts = [pa.concat_arrays(pair) for pair in zip(one[1], other[1], strict=True)]
    return groups.keys, summary.merge(parts, groups, None)


def _into(summary: Summary, one: Part, other: Part) -> Part:
    """What a step does: all keys have a row, null where there is nothing yet."""
    keys = group_rows(pa.concat_batches([one[0], other[0]])).keys
    names = [repr(row) for row in keys.to_pylist()]

    def rows_of(part: Part) -> pa.Array:
        places = {repr(row): i for i, row in enumerate(part[0].to_pylist())}
        return pa.array([places.get(name) for name in names], pa.int64())

    held = [each.take(rows_of(other)) for each in other[1]]
    given = [each.take(rows_of(one)) for each in one[1]]
    return keys, summary.merge(given, group_rows(keys), held)


def summed_up(
    aggregates: Mapping[str, Aggregate],
    rows: pa.RecordBatch,
    cuts: Sequence[int] = (),
    seed: int = 0,
    *,
    time: str | None = None,
) -> dict[Any, dict[str, Any]]:
    """The results by `k`."""
    summary = Summary(aggregates, rows.schema, time)
    parts: list[Part] = []
    for each in cut(rows, cuts):
        groups = group_rows(each.select(["k"]))
        parts.append((groups.keys, summary.partial(each, groups)))
    if not parts:
        return {}
    keys, found = merged(summary, parts, random.Random(seed))
    pa.record_batch(found, schema=summary.parts).validate(full=True)
    results = summary.results(found, keys)
    made = pa.record_batch(list(results.values()), schema=pa.schema(list(summary.kinds.items())))
    made.validate(full=True)
    named = zip(keys.column(0).to_pylist(), made.to_pylist(), strict=True)
    return dict(named)


def spread(values: Sequence[Any], kind: pa.DataType, groups: int) -> pa.RecordBatch:
    """Values `v` of keys `k` that take turns."""
    keys = pa.array(np.arange(len(values)) % groups)
    return pa.record_batch({"k": keys, "v": pa.array(values, kind)})
