"""Rows that are equal in their first keys, found together, without a look at any others.

    for which, rows in state.members(keys):   # the rows of each of these keys, which are a part

What it takes, an index of groups and twelve bytes a row, belongs to the warm form: it follows from
the keys, and is made anew with the rows. In what order the rows of a group come says nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers, frozen
from penstock.streams.state import chain_loops
from penstock.streams.state.arena import Arena
from penstock.streams.state.chain_loops import ChainTables
from penstock.streams.state.schema import COUNT, FIRST

if TYPE_CHECKING:
    from penstock.streams.state.rows import Rows

_PIECE = 1 << 18  # rows


class Chains:
    def __init__(self, arena: Arena, groups: "Rows") -> None:
        self.arena = arena
        self._groups = groups

    def _tables(self) -> ChainTables:
        groups = self._groups._arena
        return ChainTables(
            links=self.arena.links,
            records=self.arena.records,
            stride=self.arena.layout.stride,
            groups=groups.records,
            group_stride=groups.layout.stride,
            first_at=groups.layout.columns[FIRST].at // 8,
            count_at=groups.layout.columns[COUNT].at // 8,
        )

    def link(self, rows: Numbers, keys: pa.RecordBatch) -> None:
        """Brings those of the rows that are new to their groups; of the keys, the first count."""
        found = np.empty(len(rows), np.int64)
        found = found[: chain_loops.count_in(self._tables(), frozen(rows), found)]
        if len(found) == 0:
            return
        if len(found) < len(rows):
            rows, keys = rows[found], keys.take(pa.array(found))
        groups = self._groups.find_or_add(self._named(keys))
        if not chain_loops.link_rows(self._tables(), frozen(rows), frozen(groups)):
            raise self.arena.damaged()

    def count_out(self, rows: Numbers) -> None:
        """Rows that are removed stay in their chains until the step ends, but do not count."""
        chain_loops.count_out(self._tables(), frozen(rows))

    def unlink(self, rows: Numbers) -> None:
        """Takes removed rows out, and ends the step for their groups."""
        emptied = np.empty(len(rows), np.int64)
        count = chain_loops.unlink_rows(self._tables(), frozen(rows), emptied)
        if count < 0:
            raise self.arena.damaged()
        self._groups.remove(emptied[:count])
        self._groups._settle()

    def sizes(self, keys: pa.RecordBatch) -> Numbers:
        groups = self._groups.find(self._named(keys))
        counts = self._groups._values(self._groups._column(COUNT))
        return np.where(groups >= 0, counts[groups], 0)

    def members(self, keys: pa.RecordBatch) -> Iterator[tuple[Numbers, Numbers]]:
        groups = frozen(self._groups.find(self._named(keys)))
        cursor = np.zeros(3, np.int64)
        while cursor[0] < len(groups):
            which, rows = np.empty(_PIECE, np.int64), np.empty(_PIECE, np.int64)
            found = chain_loops.walk_chains(self._tables(), groups, cursor, which, rows)
            if found < 0:
                raise self.arena.damaged()
            if found:
                yield which[:found], rows[:found]

    def _named(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that make a group, as it calls them."""
        schema = self._groups.schema.keys
        return pa.RecordBatch.from_arrays(keys.columns[: len(schema)], schema=schema)
