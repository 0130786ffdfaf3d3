"""What kernels have in common that put the row of a table beside each event."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, SIDE, two_sides
from penstock.streams.algebra.rows.own_columns import DUE
from penstock.streams.algebra.spreading import BOTH_BY_KEY, BROADCAST
from penstock.streams.state import StateSchema


class Enrichment:
    """Events are the left side, and the table is the right one, whose key is shown as theirs.

    `how` is "left", which gives events without a row too, or "inner". With `broadcast` every bucket
    has all of the table, and events are wherever they are.
    """

    def __init__(
        self,
        on: Sequence[tuple[str, str]],
        events: pa.Schema,
        table: pa.Schema,
        how: str,
        *,
        event_time: str | None,
        table_time: str | None = None,
        broadcast: bool,
    ) -> None:
        if how not in ("left", "inner"):
            raise InvalidInput(
                f"events cannot be enriched as {how!r}",
                hint='how is "left", which gives all of them, or "inner"',
            )
        self.sides = two_sides(
            on,
            events,
            table,
            left_time=event_time,
            right_time=table_time,
            placed=True,
            on_once=True,
        )
        self.on = [list(each) for each in on]
        self.how = how
        self.broadcast = broadcast
        self.spreads = BROADCAST if broadcast else BOTH_BY_KEY
        self.keys = self.sides[LEFT].keys
        self.packed = self.sides[LEFT].packed
        self.columns = [*self.sides[LEFT].columns, *self.sides[RIGHT].columns]

    def state_with_versions(self, values: Sequence[pa.Field]) -> StateSchema:
        """Of events that wait and of what the table said at which time, by key and side."""
        return StateSchema(
            self.sides[LEFT].element,
            pa.schema([*values, pa.field(DUE, pa.int64())]),
            due=DUE,
            spread=None if self.broadcast else len(self.keys),
            grouped=len(self.keys) + 1,
            copied=SIDE if self.broadcast else False,
        )
