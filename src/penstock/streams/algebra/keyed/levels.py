"""The rows of a group in order, without one list of all of them: in levels, each after the last.

Level 0 has the first rows, in no order among themselves, and every level that follows has more, so
that a change far down touches nothing above. Between two levels lies a bound: what comes before it
belongs to the upper one. When a level gets too large its last rows go to the next; when level 0
runs short, the first level that has any fills it and what lies between. A row is moved so seldom
that a change costs about the same however many rows there are.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.compiled import Numbers
from penstock.streams.algebra.rows.groups import keys_and
from penstock.streams.state import BucketState

LEVEL = "(level)"
ENTRY = "(entry)"  # bytes that compare as the rows do
_GROWTH = 8
_LEAST = 256  # rows of level 0


def _bound(level: int) -> int:
    """The level in which the bound below a level stands, as its only entry."""
    return -1 - level


class Levels:
    """Over a state whose keys are those of the group, LEVEL and ENTRY, grouped by all but ENTRY.

    Level 0 has at least so many rows, unless there are fewer.
    """

    def __init__(self, least: int) -> None:
        self.least = least

    def most(self, level: int) -> int:
        """How many rows a level may have."""
        return int(2 * max(2 * self.least, _LEAST) * _GROWTH**level)

    def of_entries(
        self, state: BucketState, keys: list[pa.Array], ids: Numbers, entries: pa.Array
    ) -> Numbers:
        """The level of each of these entries, of groups by number, whose keys are given."""
        count = int(ids.max()) + 1
        levels = np.zeros(len(ids), np.int64)
        for level in range(127):
            bounds = np.full(count, -1)
            found: list[pa.Array] = []
            for which, places in state.members(keys_and(keys, count, _bound(level))):
                bounds[which] = sum(map(len, found)) + np.arange(len(which))
                found.append(state.take_keys(places).column(ENTRY))
            if not found:
                break
            limits = pa.concat_arrays(found).take(pa.array(bounds[ids], mask=bounds[ids] < 0))
            beyond = pc.fill_null(pc.greater_equal(entries, limits), False)
            levels[beyond.to_numpy(zero_copy_only=False)] = level + 1
        return levels

    def split(self, state: BucketState, key: list[pa.Array]) -> None:
        """The last rows of every level of a group that has too many go to the one behind, and
        those of the last level to as many new ones as it takes."""
        for level in range(127):
            is_last = self._size(state, key, _bound(level)) == 0
            if self._size(state, key, level) > self.most(level):
                rows = self._taken(state, self._places(state, key, level))
                state.remove(self._places(state, key, _bound(level)))
                last = level + 1
                while is_last and rows.num_rows > self.most(level):
                    rows = self._filled(state, key, level, rows)
                    level += 1
                    last = level
                if not is_last:
                    rows = self._filled(state, key, level, rows)
                self._put(state, rows, last)
            if is_last:
                return

    def _filled(
        self, state: BucketState, key: list[pa.Array], level: int, rows: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Puts the first of these rows into a level, with the bound behind it; gives the others."""
        kept = self.most(level) // 2
        self._put(state, rows.slice(0, kept), level)
        self._put_bound(state, key, level, rows.column(ENTRY)[kept].as_py())
        return rows.slice(kept)

    def refill(self, state: BucketState, key: list[pa.Array]) -> None:
        """Level 0 of a group, and what is empty behind it, get rows from the first that has any.

        It may have too few still. The rows that are there stay where they are.
        """
        source = 1
        while self._size(state, key, source) == 0 < self._size(state, key, _bound(source)):
            source += 1
        rows = self._taken(state, self._places(state, key, source))
        bounds = [self._places(state, key, _bound(level)) for level in range(source + 1)]
        behind = None
        if len(bounds[-1]):
            behind = state.take_keys(bounds[-1]).column(ENTRY)[0].as_py()
        state.remove(np.concatenate(bounds))
        done = 0
        for level in range(source + 1):
            size = rows.num_rows if level == source else self.most(level) // 2
            self._put(state, rows.slice(done, size), level)
            done = min(done + size, rows.num_rows)
            bound = rows.column(ENTRY)[done].as_py() if done < rows.num_rows else behind
            if bound is None:  # nothing is behind, and this is the last level now
                return
            self._put_bound(state, key, level, bound)

    def are_short(self, state: BucketState, keys: list[pa.Array], without: Numbers) -> Numbers:
        """The groups whose level 0 has too few rows, of which so many are not counted, while there
        are more behind it."""
        count = len(without)
        sizes = state.member_counts(keys_and(keys, count, 0)) - without
        bounds = state.member_counts(keys_and(keys, count, _bound(0)))
        return np.flatnonzero((sizes < self.least) & (bounds > 0))

    def _size(self, state: BucketState, key: list[pa.Array], level: int) -> int:
        return int(state.member_counts(keys_and(key, 1, level))[0])

    def _places(self, state: BucketState, key: list[pa.Array], level: int) -> Numbers:
        found = [places for _, places in state.members(keys_and(key, 1, level))]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _taken(self, state: BucketState, places: Numbers) -> pa.RecordBatch:
        """Rows in order, which are in the state no more."""
        rows = state.take(places)
        state.remove(places)
        return rows.take(pc.sort_indices(rows.column(ENTRY)))

    def _put(self, state: BucketState, rows: pa.RecordBatch, level: int) -> None:
        if rows.num_rows == 0:
            return
        at = state.schema.keys.get_field_index(LEVEL)
        levels = pa.array(np.full(rows.num_rows, level, np.int8))
        rows = rows.set_column(at, state.schema.keys.field(LEVEL), levels)
        places = state.find_or_add(rows.select(state.schema.keys.names))
        state.put(places, rows.select(state.schema.values.names))

    def _put_bound(self, state: BucketState, key: list[pa.Array], level: int, bound: bytes) -> None:
        keys = keys_and(key, 1, _bound(level))
        arrays = [*keys.columns, pa.array([bound], pa.binary())]
        state.find_or_add(pa.RecordBatch.from_arrays(arrays, schema=state.schema.keys))
