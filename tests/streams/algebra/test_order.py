from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams.algebra.rows.order import Picking, extreme_rows, is_ordered, order_words
from tests.streams.algebra.oracle import spark_order
from tests.streams.state.samples import SAMPLES

COMPARED = sorted(
    name for name, (kind, _) in SAMPLES.items() if is_ordered(kind) and name != "null"
)


@pytest.mark.parametrize("name", COMPARED)
def test_words_compare_as_values_do(name: str) -> None:
    kind, values = SAMPLES[name]
    array = pa.array(values[::-1] + values, kind)
    words = [tuple(each) for each in order_words(array).tolist()]
    made = array.to_pylist()
    for i, one in enumerate(made):
        for j, other in enumerate(made):
            assert (words[i] < words[j]) == (spark_order(one) < spark_order(other))


_NESTED = pa.struct({"x": pa.float64(), "y": pa.list_(pa.int8())})
_nested = st.none() | st.fixed_dictionaries(
    {"x": st.none() | st.floats(), "y": st.none() | st.lists(st.none() | st.integers(-2, 2))}
)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), _nested), max_size=20), st.booleans()
)
@settings(deadline=None, max_examples=100)
def test_the_place_decides_and_then_the_value(
    rows: list[tuple[int, int, Any]], highest: bool
) -> None:
    groups = np.array([group for group, _, _ in rows], np.int64)
    order = np.array([[place] for _, place, _ in rows], np.int64).reshape(-1, 1)
    values = pa.array([value for _, _, value in rows], _NESTED)
    picked = Picking(groups, 3, order, highest=highest).rows(values)
    choose, made = max if highest else min, values.to_pylist()
    for group in range(3):
        there = [
            (place, spark_order(value))
            for (each, place, _), value in zip(rows, made, strict=True)
            if each == group and value is not None
        ]
        row = picked[group]
        if there:
            assert (rows[row][1], spark_order(made[row])) == choose(there)
        else:
            assert row == -1


def test_no_rows_have_no_extremes() -> None:
    none = np.empty(0, np.int64)
    assert extreme_rows(none, 2, pa.array([], pa.string()), highest=True).tolist() == [-1, -1]
