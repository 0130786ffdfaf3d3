"""Random rows of every type that a column can have."""

import datetime as dt
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", '"', "\\", "a,b;c", "\x00\x1f\n\r\t\x7f", "null", "NaN", "é€😀", "\u2028", "1", " "]
)
_FIRST, _LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
_LOCAL_TIMES = st.datetimes(_FIRST, _LAST) | st.integers(0, 10**12).map(
    lambda millis: dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=millis)  # noqa: DTZ001
)


def _integers(bits: int) -> st.SearchStrategy[int]:
    bound = 2 ** (bits - 1)
    return st.integers(-bound, bound - 1) | st.sampled_from([-bound, bound - 1, 0])


SIMPLE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): _integers(8),
    pa.int16(): _integers(16),
    pa.int32(): _integers(32),
    pa.int64(): _integers(64),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): _TEXT,
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): _LOCAL_TIMES.map(lambda time: time.replace(tzinfo=dt.UTC)),
    pa.timestamp("us"): _LOCAL_TIMES,
    pa.decimal128(10, 2): st.decimals(-99999999, 99999999, places=2),
    pa.decimal128(38, 20): st.decimals(-(10**17), 10**17, places=20),
    pa.decimal128(5, 0): st.integers(-99999, 99999),
}

_simple = st.sampled_from(sorted(SIMPLE, key=str))
kinds = _simple | st.recursive(
    _simple,
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda item: pa.map_(pa.string(), item))
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: pa.struct([(f"f{place}", part) for place, part in enumerate(parts)])
        )
    ),
    max_leaves=4,
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, null among them."""
    there: st.SearchStrategy[Any]
    if pa.types.is_list(kind):
        there = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        there = st.dictionaries(_TEXT, values_of(kind.item_type), max_size=3).map(
            lambda content: list(content.items())
        )
    elif pa.types.is_struct(kind):
        there = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    else:
        there = SIMPLE[kind]
    return st.none() | there


@st.composite
def batches(draw: st.DrawFn, of: st.SearchStrategy[pa.DataType] = kinds) -> pa.RecordBatch:
    schema = pa.schema(
        [
            (f"c{place}", kind)
            for place, kind in enumerate(draw(st.lists(of, min_size=1, max_size=4)))
        ]
    )
    row = st.fixed_dictionaries({field.name: values_of(field.type) for field in schema})
    rows = pa.RecordBatch.from_pylist(draw(st.lists(row, max_size=5)), schema=schema)
    # A part of something larger, as much of what Arrow gives is.
    return rows[draw(st.integers(0, 1)) :]
