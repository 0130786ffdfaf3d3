from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateDamaged
from penstock.streams.state import cells, fixed_width
from tests.streams.state.samples import SAMPLES

VARIED = {
    name: sample for name, sample in SAMPLES.items() if fixed_width.dtype_of(sample[0]) is None
}
LEAVES = [pa.int8(), pa.float64(), pa.bool_(), pa.string(), pa.binary(3), pa.null()]


def kinds() -> st.SearchStrategy[pa.DataType]:
    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        return st.one_of(
            inner.map(pa.list_),
            inner.map(pa.large_list),
            st.tuples(inner, st.integers(0, 2)).map(lambda each: pa.list_(*each)),
            inner.map(lambda kind: pa.map_(pa.string(), kind)),
            st.lists(inner, max_size=3).map(
                lambda each: pa.struct([(str(i), kind) for i, kind in enumerate(each)])
            ),
        )

    return st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    return st.none() | _present(kind)


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if types.is_map(kind):
        return st.lists(st.tuples(st.text(max_size=2), values(kind.item_type)), max_size=2)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        return st.lists(values(kind.value_type), min_size=size, max_size=size)
    if types.is_list(kind) or types.is_large_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    leaves: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.int8(): st.integers(-128, 127),
        pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("inf")]),
        pa.bool_(): st.booleans(),
        pa.string(): st.text(max_size=9),
        pa.binary(3): st.binary(min_size=3, max_size=3),
        pa.null(): st.none(),
    }
    return leaves[kind]


def columns() -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
    return kinds().flatmap(lambda k: st.tuples(st.just(k), st.lists(values(k), max_size=6)))


def texts(array: pa.Array) -> list[str]:
    return [repr(value) for value in array.to_pylist()]


def cell(found: cells.Cells, i: int) -> bytes:
    return found.data[found.starts[i] : found.starts[i] + found.sizes[i]].tobytes()


def through_cells(array: pa.Array) -> pa.Array:
    restored = cells.from_cells(array.type, cells.to_cells(array), fixed_width.validity(array))
    restored.validate(full=True)
    return restored


@pytest.mark.parametrize("name", VARIED)
@pytest.mark.parametrize("cut", [slice(None), slice(1, None), slice(0, 0)], ids=["", "cut", "none"])
def test_values_come_back(name: str, cut: slice) -> None:
    kind, given_values = VARIED[name]
    array = pa.array([*given_values, None, *given_values[::-1]], kind)[cut]

    assert texts(through_cells(array)) == texts(array)


@given(columns())
def test_any_values_of_any_type_come_back(column: tuple[pa.DataType, list[Any]]) -> None:
    kind, given_values = column
    if fixed_width.dtype_of(kind) is not None:
        kind, given_values = pa.list_(kind), [[value] for value in given_values]
    array = pa.array(given_values, kind)

    assert texts(through_cells(array)) == texts(array)


@given(columns(), st.data())
def test_equal_values_have_equal_cells_and_others_do_not(
    column: tuple[pa.DataType, list[Any]], data: st.DataObject
) -> None:
    kind, given_values = column
    pairs = pa.struct({"value": kind})
    array = pa.array([{"value": value} for value in given_values], pairs)
    order = data.draw(st.permutations(range(len(array))))
    found, moved = cells.to_cells(array), cells.to_cells(array.take(pa.array(order, pa.int64())))

    for i, at in enumerate(order):
        assert cell(moved, i) == cell(found, at)
    distinct = dict(zip(texts(array), range(len(array)), strict=True)).values()
    assert len({cell(found, i) for i in distinct}) == len(distinct)


def test_what_lies_under_a_null_does_not_matter() -> None:
    child = pa.array([1, 2, 3], pa.int64())
    mask = pa.array([False, True, False])
    struct = pa.StructArray.from_arrays([child], ["a"], mask=mask)
    other = pa.StructArray.from_arrays([pa.array([1, 9, 3], pa.int64())], ["a"], mask=mask)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), child, mask=mask)
    short = pa.array([[1], None, [3]], pa.list_(pa.int64()))
    buffers = pa.array(["a", "junk", "b"]).buffers()
    junk = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), *buffers[1:]])
    plain = pa.array(["a", None, "b"])

    for one, two in ((struct, other), (lists, short), (junk, plain)):
        for i in range(3):
            assert cell(cells.to_cells(one), i) == cell(cells.to_cells(two), i)


def test_floats_that_are_equal_keys_have_equal_cells_only_as_keys() -> None:
    nan = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    array = pa.array([[0.0], [-0.0], [nan[0]], [nan[1]]], pa.list_(pa.float64()))
    as_keys, as_values = cells.to_cells(array, as_key=True), cells.to_cells(array)

    assert len({cell(as_keys, i) for i in range(4)}) == 2
    assert len({cell(as_values, i) for i in range(4)}) == 4


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int64())], ids=str)
def test_cells_that_reach_out_of_the_data_are_not_read(kind: pa.DataType) -> None:
    good = cells.to_cells(pa.array([None, None], kind))
    beyond = cells.Cells(good.data, good.starts + len(good.data) + 1, good.sizes + 4)

    with pytest.raises(StateDamaged):
        cells.from_cells(kind, beyond, np.ones(2, np.bool_))
