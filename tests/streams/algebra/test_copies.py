"""Rows that are there more than once are told apart by a number."""

import json
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra import kernel_from_spec
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.keyed.copies import CopiesKernel
from penstock.streams.source.keys import encode_keys
from tests.streams.algebra.batches import MISHAPS, Query

SCHEMA = pa.schema({"a": pa.int64(), "t": pa.string(), WEIGHT: pa.int32()})
rows = st.tuples(st.none() | st.integers(0, 1), st.sampled_from("xy"), st.integers(-3, 4))


@settings(max_examples=50)
@given(batches=st.lists(st.lists(rows, max_size=6), max_size=5), mishap=st.sampled_from(MISHAPS))
def test_each_copy_has_a_number(
    batches: list[list[tuple[int | None, str, int]]], mishap: str
) -> None:
    kernel = kernel_from_spec(json.loads(json.dumps(CopiesKernel(SCHEMA, "copy").spec())))
    table: Counter[tuple[int | None, str]] = Counter()
    result: Counter[tuple[int | None, str, int]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=2)
        for batch in batches:
            for a, t, weight in batch:
                table[a, t] += weight
            cut = pa.RecordBatch.from_pylist(
                [{"a": a, "t": t, WEIGHT: weight} for a, t, weight in batch], SCHEMA
            )
            for row in query.batch([cut], mishap):
                assert row[WEIGHT] in (-1, 1)
                result[row["a"], row["t"], row["copy"]] += row[WEIGHT]
            assert {row for row, count in result.items() if count} == {
                (*row, number + 1) for row, count in table.items() for number in range(count)
            }
            assert set(result.values()) <= {0, 1}


NUMBERS = pa.schema({"n": pa.float64(), WEIGHT: pa.int32()})


@given(data=st.data(), cuts=st.lists(st.integers(1, 3), min_size=2, max_size=8))
def test_a_copy_goes_under_the_key_under_which_it_came(data: Any, cuts: list[int]) -> None:
    """Whatever stands beside it in a batch: one zero, and one NaN, is as good as the other."""
    kernel = CopiesKernel(NUMBERS, "copy")
    there: list[float] = []
    keys: Counter[bytes] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel)
        for size in cuts:
            rows = []
            for _ in range(size):
                gone = bool(there) and data.draw(st.booleans())
                number = data.draw(st.sampled_from(there or [-0.0, 0.0, math.nan]))
                (there.remove if gone else there.append)(number)
                rows.append({"n": number, WEIGHT: -1 if gone else 1})
            cut = pa.RecordBatch.from_pylist(rows, NUMBERS)
            for row in query.batch([cut]):
                written = pa.RecordBatch.from_pylist([row], kernel.output)
                keys[encode_keys(written, ["n", "copy"])[0].as_py()] += row[WEIGHT]
    zeros = len([each for each in there if each == 0])
    left = {f'{{"n":0,"copy":{number + 1}}}' for number in range(zeros)}
    left |= {f'{{"n":"NaN","copy":{number + 1}}}' for number in range(len(there) - zeros)}
    assert {key.decode() for key, count in keys.items() if count} == left


def test_the_number_has_a_name_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="'a' twice"):
        CopiesKernel(SCHEMA, "a")
