"""Where in a row of an arena each part of it stands."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.streams.state import fixed_width
from penstock.streams.state.keys import KeyLayout
from penstock.streams.state.schema import StateSchema

_WORD = 8  # bytes
_INLINE_BYTES = 64  # a value of fixed width that is longer is better off in the heap
_SPARE_META_BYTES = (2, 3)


@dataclass(frozen=True)
class Column:
    """A column of values: in the row at byte `at`, or, without a dtype, place and size there."""

    name: str
    kind: pa.DataType
    dtype: np.dtype[np.generic] | None
    at: int
    valid_at: int


class RowLayout:
    """Meta word, key, places of cells, values of fixed width, then what is left of validity.

    A count and a sum per integer key take 32 bytes, so that a row lies in one line of the cache.
    """

    def __init__(self, schema: StateSchema) -> None:
        self.key = KeyLayout(schema.keys)
        at = (1 + self.key.width + (2 if self.key.has_tail else 0)) * _WORD
        places: dict[str, tuple[np.dtype[np.generic] | None, int]] = {}
        inline: list[tuple[str, np.dtype[np.generic]]] = []
        for field in schema.values:
            dtype = fixed_width.dtype_of(field.type)
            if dtype is not None and 0 < dtype.itemsize <= _INLINE_BYTES:
                inline.append((field.name, dtype))
            else:
                places[field.name] = None, at
                at += 2 * _WORD
        self.cells = len(places)
        self.fixed_at = at // _WORD  # the word at which values of fixed width begin
        # The widest first: each is then aligned, and nothing lies between them.
        for name, dtype in sorted(inline, key=lambda each: -each[1].base.itemsize):
            places[name] = dtype, at
            at += dtype.itemsize
        self.columns: dict[str, Column] = {}
        spare = list(_SPARE_META_BYTES)
        for field in schema.values:
            if spare:
                valid_at = spare.pop(0)
            else:
                valid_at, at = at, at + 1
            dtype, place = places[field.name]
            self.columns[field.name] = Column(field.name, field.type, dtype, place, valid_at)
        self.stride = -(-at // _WORD)  # in words
        # The word in which it stands that a row is due, if it does.
        self.due_at = None if schema.due is None else self.columns[schema.due].at // _WORD
        self.groups = None if schema.groups is None else row_layout(schema.groups)


row_layout = lru_cache(maxsize=256)(RowLayout)
