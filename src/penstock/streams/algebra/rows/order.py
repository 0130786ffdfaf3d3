"""Values of any type in Spark's order, and the row of each group that comes first or last in it.

Nulls inside a value come first, NaN after all other numbers, texts and bytes are compared byte by
byte, structs field by field, lists element by element.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.compiled import Mask, Numbers, frozen
from penstock.streams.algebra.folds.fold_loops import pick_rows
from penstock.streams.state import cells, fixed_width

_SIGN = np.int64(-(2**63))


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values can be compared, which maps cannot in Spark."""
    if pa.types.is_map(kind):
        return False
    if pa.types.is_struct(kind):
        return all(is_ordered(field.type) for field in kind)
    if pa.types.is_nested(kind):
        return is_ordered(kind.value_type)
    return not pa.types.is_interval(kind)


def order_words(array: pa.Array) -> Numbers:
    """Words, the same number for each value, that compare as the values do; two dimensions.

    Those of a text, or of anything nested, are its rank among the others, and mean nothing outside
    of this array. Under a null stands something.
    """
    kind = array.type
    dtype = fixed_width.dtype_of(kind)
    if pa.types.is_null(kind):
        return np.zeros((len(array), 0), np.int64)
    if pa.types.is_struct(kind):
        parts = [_with_nulls(child) for child in array.flatten()]
        return np.hstack([np.empty((len(array), 0), np.int64), *parts])
    if dtype is None or pa.types.is_fixed_size_binary(kind):
        return _ranks(array).reshape(-1, 1)
    values = fixed_width.canonical(fixed_width.numbers(array))
    if values.ndim == 2:
        words = np.ascontiguousarray(values[:, ::-1]).astype(np.int64)
        words[:, 1:] ^= _SIGN  # the lower ones have no sign
        return words
    if dtype.kind == "f":
        bits = values.astype(np.float64).view(np.int64)
        words = np.where(bits < 0, ~bits ^ _SIGN, bits)
    elif dtype == np.uint64:
        words = values.view(np.int64) ^ _SIGN
    else:
        words = values.astype(np.int64)
    return words.reshape(-1, 1)


def _with_nulls(array: pa.Array) -> Numbers:
    valid = fixed_width.validity(array)
    words = order_words(array)
    return np.hstack([valid.astype(np.int64).reshape(-1, 1), np.where(valid[:, None], words, 0)])


def _ranks(array: pa.Array) -> Numbers:
    kind = array.type
    if not pa.types.is_nested(kind):
        coded = array.dictionary_encode()  # as ranks take long, and values often come again
        ranks = pc.rank(coded.dictionary, "ascending", tiebreaker="dense").to_numpy()
        codes = fixed_width.numbers(coded.indices)
        return ranks[codes].astype(np.int64) if len(ranks) else np.zeros(len(array), np.int64)
    if pa.types.is_map(kind):  # which have no order in Spark: any will do
        data, starts, sizes = cells.to_cells(array, as_key=True)
        content = data.tobytes()
        return _rank(
            [content[a : a + size] for a, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
        )
    elements, lengths = cells.elements_of(array)
    words = list(map(tuple, _with_nulls(elements).tolist()))
    ends = np.cumsum(lengths).tolist()
    return _rank(
        [tuple(words[b - size : b]) for b, size in zip(ends, lengths.tolist(), strict=True)]
    )


def _rank(values: list[Any]) -> Numbers:
    ranks = {each: i for i, each in enumerate(sorted(set(values)))}
    return np.array([ranks[each] for each in values], np.int64)


def last_rows(groups: Numbers, count: int, words: Numbers) -> Numbers:
    """The row of each group whose words, an array of two dimensions, come last."""
    picked, _ = _pick(groups, count, words, np.ones(len(words), np.bool_), True)
    return picked


def extreme_rows(groups: Numbers, count: int, values: pa.Array, *, highest: bool) -> Numbers:
    """The row of each group with the highest or lowest value; -1 where all of them are null."""
    valid = fixed_width.validity(values)
    picked, _ = _pick(groups, count, order_words(values), valid, highest)
    return picked


class Picking:
    """Picks the row of each group that comes last (`highest`) or first.

    By these words, an array of two dimensions, and then by the values.
    """

    def __init__(self, groups: Numbers, count: int, order: Numbers, *, highest: bool) -> None:
        self.order = order
        self._groups = groups
        self._count = count
        self._highest = highest
        self._valid: Mask | None = None

    def rows(self, *values: pa.Array) -> Numbers:
        """The row of each group, among those whose value is not null; -1 where there is none.

        Values may come in several arrays, one behind the other. Of columns that have their nulls in
        the same rows the answer mostly is the same array.
        """
        valid = np.concatenate([fixed_width.validity(each) for each in values])
        if self._valid is None or not np.array_equal(valid, self._valid):
            self._valid = valid
            self._picked, self._tied = _pick(
                self._groups, self._count, self.order, valid, self._highest
            )
            self._ties = np.flatnonzero(self._tied[self._groups] & valid)
            best = self.order[self._picked[self._groups[self._ties]]]
            self._ties = self._ties[(self.order[self._ties] == best).all(axis=1)]
        if len(self._ties) == 0:
            return self._picked
        found = extreme_rows(
            self._groups[self._ties],
            self._count,
            pa.concat_arrays(values).take(pa.array(self._ties)),
            highest=self._highest,
        )
        picked = self._picked.copy()
        picked[self._tied] = self._ties[found[self._tied]]
        return picked


def _pick(
    groups: Numbers, count: int, words: Numbers, valid: Mask, highest: bool
) -> tuple[Numbers, Mask]:
    picked, tied = np.full(count, -1), np.zeros(count, np.bool_)
    flat = np.ascontiguousarray(words).reshape(-1)
    pick_rows(frozen(groups), frozen(flat), words.shape[1], frozen(valid), highest, picked, tied)
    return picked, tied
