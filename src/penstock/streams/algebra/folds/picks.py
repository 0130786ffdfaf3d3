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
from penstock.streams.algebra.changes import TIME_TYPE
from penstock.streams.algebra.folds.fold import Parts, take, take_behind
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.algebra.rows.order import Picking
from penstock.streams.algebra.rows.shape import RowShape
from penstock.streams.state import cells, fixed_width

_WORD = 8  # bytes
_EARLIEST = -(2**63)


class Picks:
    """All the values of a group that are picked by the same end of the order: a fold of several.

    Their parts are the words of the place, the places of all where they differ, and the values.
    """

    order_free = True

    def __init__(self, columns: Mapping[str, str], rows: RowShape, *, last: bool) -> None:
        """`columns` gives for each name the column it is picked from."""
        self._columns = list(columns.values())
        self._order = list(rows.order.values())
        self.kinds = [rows.kind_of(column) for column in self._columns]
        self._last = last
        side = "last" if last else "first"
        self.parts = pa.schema(
            [
                *((f"({side} {word})", pa.int64()) for word in rows.order),
                (f"({side} places)", pa.binary()),
                *zip(columns, self.kinds, strict=True),
            ]
        )

    @property
    def _width(self) -> int:
        return len(self._order)

    def results(self, parts: Parts) -> Parts:
        return parts[self._width + 1 :]

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        order = beside([place_word(rows.column(name)) for name in self._order], rows.num_rows)
        picking = Picking(groups.ids, len(groups), order, highest=self._last)
        values = [rows.column(name) for name in self._columns]
        picked = [picking.rows(each) for each in values]
        merged = [take(*each) for each in zip(values, picked, strict=True)]
        return self._with_places(picked, [order] * len(picked), merged)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        if into is None and groups.are_single:
            return parts
        count = len(groups)
        ids = groups.ids if into is None else groups.behind(count)
        sides = [parts] if into is None else [into, parts]
        order = np.vstack([beside(each[: self._width], len(each[-1])) for each in sides])
        own = self._places(order, pa.concat_arrays([each[self._width] for each in sides]))
        common = Picking(ids, count, order, highest=self._last)
        picked: list[Numbers] = []
        orders: list[Numbers] = []
        merged: list[pa.Array] = []
        for i in range(len(self._columns)):
            values = [self.results(each)[i] for each in sides]
            picking = common
            if own is not None:
                picking = Picking(ids, count, own[:, i], highest=self._last)
            rows = picking.rows(*values)
            picked.append(rows)
            orders.append(picking.order)
            merged.append(
                take(values[0], rows) if into is None else take_behind(values[0], values[1], rows)
            )
        return self._with_places(picked, orders, merged)

    def _with_places(
        self, picked: list[Numbers], orders: list[Numbers], values: list[pa.Array]
    ) -> Parts:
        """The parts, given from which row each value comes, and the places of all rows for it."""
        count = len(picked[0])
        same = zip(picked, orders, strict=True)
        if all(rows is picked[0] and order is orders[0] for rows, order in same):
            place, others = orders[0][picked[0]], pa.nulls(count, pa.binary())
        else:
            places = [order[rows] for rows, order in zip(picked, orders, strict=True)]
            place, others = self._common_place(np.stack(picked), np.stack(places, axis=1))
        words = [np.ascontiguousarray(place[:, i]) for i in range(self._width)]
        everywhere = np.ones(count, np.bool_)
        return [
            *(fixed_width.from_numbers(pa.int64(), each, everywhere) for each in words),
            others,
            *values,
        ]

    def _places(self, held: Numbers, differing: pa.Array) -> NDArray[np.int64] | None:
        """The place of each value of each row, if there are any that are not the common one."""
        if differing.null_count == len(differing):
            return None
        count = len(self._columns)
        places = np.repeat(held[:, None, :], count, axis=1)
        content, _ = cells.to_cells(differing).compact()
        own = content.view(np.int64).reshape(-1, count, self._width)
        places[fixed_width.validity(differing)] = own
        return places

    def _common_place(
        self, picked: NDArray[np.int64], places: NDArray[np.int64]
    ) -> tuple[Numbers, pa.Array]:
        """The place of one value of each group, and those of all where another has another."""
        there = picked.T >= 0
        one = np.argmax(there, axis=1)
        place = places[np.arange(len(one)), one]
        differ = ((places != place[:, None, :]).any(axis=2) & there).any(axis=1)
        places[~there] = 0
        size = len(self._columns) * self._width * _WORD
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


def place_word(column: pa.Array) -> pa.Array:
    """What rows are ordered by, as words that compare so; null comes before all."""
    if pa.types.is_temporal(column.type):
        column = column.cast(TIME_TYPE)
    return column.cast(pa.int64()).fill_null(_EARLIEST)


def beside(words: Sequence[pa.Array], count: int) -> Numbers:
    """The places of so many rows as an array of two dimensions."""
    columns = [fixed_width.numbers(each) for each in words]
    return np.stack(columns, axis=1) if columns else np.empty((count, 0), np.int64)
