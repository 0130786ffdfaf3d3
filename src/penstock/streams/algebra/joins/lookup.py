"""Events with the row that a table has for them as they are processed.

    kernel = LookupKernel([("customer", "id")], orders, customers)

What a batch brings for the table is there for its events; nothing is given out again when the table
changes later. So the answer depends on when rows are processed, which a replay does not repeat.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import TIME, TIME_TYPE, WEIGHT
from penstock.streams.algebra.joins.enrichment import Enrichment
from penstock.streams.algebra.joins.pairs import have_keys
from penstock.streams.algebra.joins.sides import LEFT, PLACE, RIGHT, ROW, SIDE
from penstock.streams.algebra.kernel import one_batch
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.algebra.rows.weights import weights_of
from penstock.streams.state import BucketState, StateSchema, fixed_width


class LookupKernel(Enrichment):
    """Columns of the event, then of the table, and with `event_time` the event's as `_time`.

    The table comes as upserts, or as changes with a `_weight`, of which one row of a key is left.
    """

    is_final = False

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        events: pa.Schema,
        table: pa.Schema,
        how: str = "left",
        *,
        event_time: str | None = None,
        broadcast: bool = False,
    ) -> None:
        if WEIGHT in events.names:
            raise InvalidInput(
                "the rows of a table are enriched with what another has as of their processing, "
                "and could not be taken back",
                hint="ps.join(left, right, on=...) keeps the join of two tables up to date",
            )
        super().__init__(on, events, table, how, event_time=event_time, broadcast=broadcast)
        keys = pa.schema(self.sides[LEFT].key_fields)
        self.state = StateSchema(keys, pa.schema([(ROW, pa.binary())]), copied=broadcast)
        times = [] if event_time is None else [pa.field(TIME, TIME_TYPE)]
        self.output = pa.schema([*self.columns, *times])

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        sides = fixed_width.numbers(rows.column(SIDE))
        self._keep(state, rows.filter(pa.array((sides == RIGHT) & have_keys(rows, len(self.keys)))))
        events = rows.filter(pa.array(sides == LEFT))
        if events.num_rows == 0:
            return
        places = state.find(events.select(list(self.keys)))
        places = np.where(have_keys(events, len(self.keys)), places, -1)
        there = np.flatnonzero(places >= 0)
        if len(there):
            some = events.take(pa.array(there))
            yield self._batch(some, state.take_values(places[there]).column(ROW))
        if self.how == "left" and len(there) < len(places):
            yield self._batch(events.filter(pa.array(places < 0)), None)

    def _keep(self, state: BucketState, rows: pa.RecordBatch) -> None:
        """The last row of each key, of changes the one that appears."""
        if rows.num_rows == 0:
            return
        groups = group_rows(rows.select(list(self.keys)))
        last = np.full(len(groups), -1)
        order = self._order(rows)
        last[groups.ids[order]] = order  # of a group twice, the last counts
        chosen = rows.take(pa.array(last))
        values = chosen.column(ROW)
        stays = fixed_width.validity(values) & (weights_of(chosen) > 0)
        kept = groups.keys.filter(pa.array(stays))
        state.put(state.find_or_add(kept), pa.record_batch({ROW: values.filter(pa.array(stays))}))
        gone = state.find(groups.keys.filter(pa.array(~stays)))
        state.remove(gone[gone >= 0])

    def _order(self, rows: pa.RecordBatch) -> Numbers:
        return np.lexsort((fixed_width.numbers(rows.column(PLACE)), weights_of(rows)))

    def _batch(self, events: pa.RecordBatch, values: pa.Array | None) -> pa.RecordBatch:
        left, right = self.sides
        columns = left.read(events)
        if values is None:
            columns += right.nothing(events, left)
        else:
            at = events.schema.get_field_index(ROW)
            columns += right.read(events.set_column(at, ROW, values))
        if left.timed:
            columns.append(events.column(TIME).cast(TIME_TYPE))
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def spec(self) -> dict[str, Any]:
        left, right = self.sides
        return {
            "kernel": "lookup",
            "on": self.on,
            "left": left.described(),
            "right": right.described(),
            "how": self.how,
            "broadcast": self.broadcast,
            "time": left.time,
        }
