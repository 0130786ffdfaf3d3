"""Different rows of a stream come once each, however they are cut."""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra import kernel_from_spec
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.keyed.distinct import DistinctKernel
from tests.streams.algebra.batches import MISHAPS, Query

SCHEMA = pa.schema({"a": pa.int64(), "t": pa.string(), "more": pa.string()})
rows = st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from("xy"))


@settings(max_examples=50)
@given(
    batches=st.lists(st.lists(rows, max_size=6), max_size=5),
    mishap=st.sampled_from(MISHAPS),
    buckets=st.integers(1, 2),
)
def test_a_row_comes_when_it_is_new(
    batches: list[list[tuple[int | None, str | None]]], mishap: str, buckets: int
) -> None:
    made = DistinctKernel(["t", "a"], SCHEMA)
    kernel = kernel_from_spec(json.loads(json.dumps(made.spec())))
    seen: set[tuple[int | None, str | None]] = set()
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=buckets)
        for batch in batches:
            middle = len(batch) // 2
            cuts = [
                pa.RecordBatch.from_pylist([{"a": a, "t": t} for a, t in cut], SCHEMA)
                for cut in (batch[:middle], batch[middle:])
            ]
            came = query.batch(cuts, mishap)
            assert all(row[WEIGHT] == 1 for row in came)
            found = [(row["a"], row["t"]) for row in came]
            assert sorted(found, key=repr) == sorted(set(batch) - seen, key=repr)
            seen |= set(batch)
        assert query.state_rows() == len(seen)


def test_rows_that_may_go_are_refused() -> None:
    with pytest.raises(InvalidInput, match="counted"):
        DistinctKernel(["a"], pa.schema({"a": pa.int64(), WEIGHT: pa.int32()}))
