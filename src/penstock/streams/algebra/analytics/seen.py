"""Whether the key of a row occurred before, exactly.

    kernel = SeenKernel("user", schema, time="at")

Before means earlier in event time, then by partition and offset. State has the first row of every
key there ever was, whole, so it grows with the number of keys; `BloomKernel` makes do with bits.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask
from penstock.streams.algebra.changes import WEIGHT_FIELD
from penstock.streams.algebra.kernel import one_batch
from penstock.streams.algebra.rows.groups import Groups, group_rows
from penstock.streams.algebra.rows.order import Picking
from penstock.streams.algebra.rows.shape import check_result_names
from penstock.streams.algebra.rows.whole import WholeRows
from penstock.streams.state import BucketState, StateSchema

SEEN_FIELD = pa.field("seen_before", pa.bool_())


class SeenKernel:
    """Every row of the stream, its columns in their order, and `seen_before`; with `time`, the
    event time as `_time`.

    A row is answered as soon as it comes. If one turns out to be earlier than the first of its key
    so far, that one is taken back and given as seen before. Rows with the same place in the order
    are ordered by their values; of rows that are equal in all of these, one is the first.
    """

    portable = True
    is_final = False

    def __init__(
        self, key: str | Sequence[str], schema: pa.Schema, time: str | None = None
    ) -> None:
        self._rows = WholeRows(key, schema, time)
        self._rows.refuse_tables("what was seen once is seen")
        self.keys = self._rows.keys
        self.packed = self._rows.packed
        self.needed = self._rows.needed
        values = list(self.packed)[len(self.keys) :]
        self.state = StateSchema(pa.schema(self._rows.key_fields), pa.schema(values))
        self.output = seen_output(self._rows)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._rows.pack(rows)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        groups = group_rows(rows.select(self.keys))
        for _, some, of_piece in groups.pieces(rows):
            yield from self._answered(state, some, of_piece)

    def _answered(
        self, state: BucketState, rows: pa.RecordBatch, groups: Groups
    ) -> Iterator[pa.RecordBatch]:
        # Keys as state has them, so that what is taken back is what was given.
        keys = groups.keys.take(pa.array(groups.ids)).columns
        rows = pa.RecordBatch.from_arrays(
            [*keys, *rows.columns[len(self.keys) :]], schema=self.packed
        )
        places = state.find(groups.keys)
        known = np.flatnonzero(places >= 0)
        held = state.take(places[known])
        order = np.vstack([self._rows.order(each) for each in (held, rows)])
        picking = Picking(np.concatenate([known, groups.ids]), len(groups), order, highest=False)
        first = picking.rows(*(each.to_struct_array() for each in (held, rows)))
        is_new = first >= len(known)  # the first row of a key is one of these
        firsts = first[is_new] - len(known)
        seen = np.ones(rows.num_rows, np.bool_)
        seen[firsts] = False

        corrected = held.filter(pa.array(is_new[known]))
        was_first = np.zeros(corrected.num_rows, np.bool_)
        yield from answers(self.output, corrected, was_first, -1)
        yield from answers(self.output, corrected, ~was_first, 1)
        yield from answers(self.output, rows, seen, 1)
        places = state.find_or_add(groups.keys.filter(pa.array(is_new)))
        state.put(places, rows.take(pa.array(firsts)).select(self.state.values.names))

    def spec(self) -> dict[str, Any]:
        return {"kernel": "seen", **self._rows.spec()}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "SeenKernel":
        return cls(**WholeRows.arguments(spec))


def seen_output(rows: WholeRows) -> pa.Schema:
    check_result_names([*(each.name for each in rows.columns), SEEN_FIELD.name])
    return pa.schema([*rows.columns, SEEN_FIELD, *rows.times, WEIGHT_FIELD])


def answers(
    output: pa.Schema, rows: pa.RecordBatch, seen: Mask, weight: int
) -> Iterator[pa.RecordBatch]:
    """These rows with an answer each, in a batch, if there are any."""
    if rows.num_rows == 0:
        return
    own = {
        SEEN_FIELD.name: pa.array(seen),
        WEIGHT_FIELD.name: pa.array(np.full(rows.num_rows, weight, np.int32)),
    }
    arrays = [own[name] if name in own else rows.column(name) for name in output.names]
    yield pa.RecordBatch.from_arrays(arrays, schema=output)
