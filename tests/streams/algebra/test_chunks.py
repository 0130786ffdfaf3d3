import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams.algebra.rows.chunks import Chunks

NUMBERS = [
    pa.field("number", pa.int64()),
    pa.field("flag", pa.bool_()),
    pa.field("small", pa.int8()),
    pa.field("exact", pa.decimal128(20, 2)),
    pa.field("four", pa.binary(4)),
    pa.field("day", pa.date32()),
]
TEXTS = [
    pa.field("number is valid", pa.string()),
    pa.field("nothing", pa.null()),
    pa.field("tags", pa.list_(pa.struct([("name", pa.string()), ("n", pa.int32())]))),
]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "number": st.integers(-(2**63), 2**63 - 1),
    "flag": st.booleans(),
    "small": st.integers(-128, 127),
    "exact": st.decimals(-99, 99, places=2),
    "four": st.binary(min_size=4, max_size=4),
    "day": st.dates(dt.date(1900, 1, 1)),
    "number is valid": st.text(max_size=3),
    "nothing": st.none(),
    "tags": st.lists(
        st.fixed_dictionaries({"name": st.text(max_size=2), "n": st.integers(0, 9)}), max_size=2
    ),
}


@pytest.mark.parametrize("fields", [NUMBERS, [*NUMBERS[:3], *TEXTS, *NUMBERS[3:]]])
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=5))
@settings(deadline=None, max_examples=40)
def test_entries_are_read_as_they_were_written(
    fields: list[pa.Field], data: st.DataObject, lengths: list[int]
) -> None:
    count = sum(lengths)
    chunks = Chunks(fields)
    values = {
        each.name: data.draw(
            st.lists(st.none() | VALUES[each.name], min_size=count, max_size=count)
        )
        for each in fields
    }
    columns = [pa.array([None, *values[each.name]], each.type)[1:] for each in fields]
    packed = chunks.pack(columns, np.cumsum([0, *lengths[:-1]]))
    assert packed.schema.equals(chunks.cells)
    missing = data.draw(st.integers(0, len(lengths)))  # a row without a chunk
    packed = packed.take(pa.array([*range(missing), None, *range(missing, len(lengths))]))
    found, entries = chunks.unpack(packed)
    assert found.tolist() == [*lengths[:missing], 0, *lengths[missing:]]
    rows = data.draw(st.lists(st.integers(0, count - 1), max_size=6))
    taken = entries.take(range(len(fields)), np.array(rows, np.int64))
    for each, column in zip(fields, taken, strict=True):
        assert column.type == each.type
        assert column.to_pylist() == [values[each.name][row] for row in rows]


def test_equal_entries_have_equal_bytes() -> None:
    chunks = Chunks(NUMBERS[:4])
    under = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([7, 1]))]
    )
    others = [pa.array([True, None]), pa.array([1, 2], pa.int8())]
    exact = pa.array([None, Decimal("1.50")], NUMBERS[3].type)
    packed = [
        chunks.pack([numbers, *others, exact], np.array([0, 1]))
        for numbers in (under, pa.array([None, 1], pa.int64()))
    ]
    assert packed[0].equals(packed[1])
