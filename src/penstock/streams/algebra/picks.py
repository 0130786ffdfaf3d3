"""The first or the last value of columns, by event time, partition and offset, nulls left out.

Of several columns the values mostly come from the same row, and so have the same place in the
order. The state keeps the place of one of them, and those of all only where they differ: one for
each value would double the rows.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.events.compiled import Numbers
from penstock.streams.algebra.folds import Parts, take_behind
from penstock.streams.algebra.grouping import Groups
from penstock.streams.algebra.order import Picking
from penstock.streams.state import cells, fixed_width

_WORD = 8  # bytes


class Picks:
    """All the values of a key that are picked by the same end of the order.

    Their parts are the words of the place, the places of all where they differ, and the values.
    """

    def __init__(
        self, columns: Mapping[str, str], schema: pa.Schema, order: Sequence[str], *, last: bool
    ) -> None:
        """`columns` gives for each name the column it is picked from, `order` names the words."""
        self.columns = list(columns.values())
        self._width = len(order)
        self._last = last
        side = "last" if last else "first"
        self.parts = pa.schema(
            [
                *((f"({side} {word})", pa.int64()) for word in order),
                (f"({side} places)", pa.binary()),
                *((name, schema.field(column).type) for name, column in columns.items()),
            ]
        )
        self.names = list(columns)

    def rows(self, values: Sequence[pa.Array], order: Numbers, groups: Groups) -> list[Numbers]:
        """The row from which each value comes, for each group; -1 where there is none.

        Given are the columns in the order of `columns`, and the words of the rows' places.
        """
        picking = Picking(groups.ids, len(groups), order, highest=self._last)
        return [picking.rows(each) for each in values]

    def results(self, parts: Parts) -> dict[str, pa.Array]:
        return dict(zip(self.names, parts[self._width + 1 :], strict=True))

    def merge(
        self, values: Sequence[pa.Array], order: Numbers, groups: Groups, into: Parts
    ) -> Parts:
        count = len(groups)
        ids = groups.behind(count)
        held = beside(into[: self._width], count)
        own = self._places(held, into[self._width])
        common = Picking(ids, count, np.vstack([held, order]), highest=self._last)
        picked: list[Numbers] = []
        places: list[Numbers] = []
        merged: list[pa.Array] = []
        for i, before in enumerate(into[self._width + 1 :]):
            picking = common
            if own is not None:
                both = np.vstack([own[:, i], order])
                picking = Picking(ids, count, both, highest=self._last)
            picked.append(picking.rows(before, values[i]))
            places.append(picking.order[picked[-1]])
            merged.append(take_behind(before, values[i], picked[-1]))
        if own is None and all(each is picked[0] for each in picked):
            place, differing = places[0], pa.nulls(count, pa.binary())
        else:
            place, differing = self._common_place(np.stack(picked), np.stack(places, axis=1))
        words = [np.ascontiguousarray(place[:, i]) for i in range(self._width)]
        everywhere = np.ones(count, np.bool_)
        return [
            *(fixed_width.from_numbers(pa.int64(), each, everywhere) for each in words),
            differing,
            *merged,
        ]

    def _places(self, held: Numbers, differing: pa.Array) -> NDArray[np.int64] | None:
        """The place of each value of each key, if there are any that are not the common one."""
        if differing.null_count == len(differing):
            return None
        count = len(self.columns)
        places = np.repeat(held[:, None, :], count, axis=1)
        content, _ = cells.to_cells(differing).compact()
        own = content.view(np.int64).reshape(-1, count, self._width)
        places[fixed_width.validity(differing)] = own
        return places

    def _common_place(
        self, picked: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[Numbers, pa.Array]:
        """The place of one value of each key, and those of all where another has another."""
        there = picked.T >= 0
        one = np.argmax(there, axis=1)
        place = places[np.arange(len(one)), one]
        differ = ((places != place[:, None, :]).any(axis=2) & there).any(axis=1)
        places[~there] = 0
        size = len(self.columns) * self._width * _WORD
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(differ)]) * size
        return place, pa.Array.from_buffers(
            pa.binary(),
            len(differ),
            [
                fixed_width.bitmap_of(differ),
                pa.py_buffer(bounds.astype(np.int32)),
                pa.py_buffer(np.ascontiguousarray(places[differ])),
            ],
        )


def beside(words: Sequence[pa.Array], count: int) -> Numbers:
    """The places of so many rows as an array of two dimensions."""
    columns = [fixed_width.numbers(each) for each in words]
    return np.stack(columns, axis=1) if columns else np.empty((count, 0), np.int64)


def chosen_rows(picked: list[Numbers], groups: Groups) -> tuple[Numbers, Numbers]:
    """The rows that are picked for anything: one of each group, in order, and then the others.

    A group for which nothing is picked is given its first row.
    """
    if all(each is picked[0] for each in picked) and (picked[0] >= 0).all():
        return picked[0], np.empty(0, np.int64)
    leading = groups.firsts.copy()
    others = np.zeros(len(groups.ids), np.bool_)
    for each in reversed(picked):
        leading = np.where(each >= 0, each, leading)
        others[each[each >= 0]] = True
    others[leading] = False
    return leading, np.flatnonzero(others)
