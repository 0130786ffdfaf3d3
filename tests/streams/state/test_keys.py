from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InvalidInput
from penstock.streams.state import bucket_of, keys
from penstock.streams.state.keys import KeyLayout, hashes_of, order_of
from tests.streams.state.samples import SAMPLES


def column(kind: pa.DataType, *values: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, kind)], ["key"])


def test_buckets_never_change() -> None:
    """A key that went to another bucket would lose its state."""
    assert bucket_of(column(pa.int64(), 0, 1, 2, -1, 2**63 - 1, None), 1000).tolist() == [
        994,
        44,
        0,
        932,
        671,
        878,
    ]
    assert bucket_of(column(pa.string(), "", "a", "customer-0000001", None), 1000).tolist() == [
        994,
        806,
        972,
        56,
    ]
    nested = column(pa.list_(pa.struct({"a": pa.int8(), "b": pa.string()})), [], [None], None)
    assert bucket_of(nested, 1000).tolist() == [809, 920, 494]
    two = pa.record_batch({"a": pa.array(["x", None]), "b": pa.array([1.5, None])})
    assert bucket_of(two, 1000).tolist() == [594, 184]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("buckets", [1, 2, 7, 200])
def test_keys_spread_evenly(kind: pa.DataType, buckets: int) -> None:
    batch = pa.record_batch([pa.array(np.arange(20_000)).cast(kind)], ["key"])
    counts = np.bincount(bucket_of(batch, buckets), minlength=buckets)

    assert len(counts) == buckets
    assert counts.min() > 0.5 * 20_000 / buckets
    assert counts.max() < 1.6 * 20_000 / buckets


def test_there_is_a_bucket_at_least() -> None:
    with pytest.raises(InvalidInput):
        bucket_of(column(pa.int64(), 1), 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_keys_of_every_type_come_back_and_differ(name: str) -> None:
    kind, values = SAMPLES[name]
    batch = column(kind, *values, None)
    layout = KeyLayout(batch.schema)
    encoded = layout.encode(batch)

    (restored,) = layout.decode(encoded)
    restored.validate(full=True)
    assert repr(restored.to_pylist()) == repr(batch.column(0).to_pylist())
    assert (
        len({repr(keys.comparable(encoded, i)) for i in range(batch.num_rows)}) == len(values) + 1
    )
    assert len(set(hashes_of(encoded).tolist())) == batch.num_rows


@pytest.mark.parametrize("name", SAMPLES)
def test_a_slice_has_the_same_hashes(name: str) -> None:
    kind, values = SAMPLES[name]
    batch = column(kind, *values, None, *values, None)
    layout = KeyLayout(batch.schema)
    half = len(values) + 1

    assert (
        hashes_of(layout.encode(batch.slice(half))).tolist()
        == hashes_of(layout.encode(batch)).tolist()[half:]
    )


def test_keys_of_all_types_together() -> None:
    kinds = [kind for kind, values in SAMPLES.values() if values]
    rows = [[values[i % len(values)] for _, values in SAMPLES.values() if values] for i in (0, 1)]
    rows.append([None] * len(kinds))
    batch = pa.record_batch(
        [
            pa.array(list(each), kind)
            for each, kind in zip(zip(*rows, strict=True), kinds, strict=True)
        ],
        [str(i) for i in range(len(kinds))],
    )
    layout = KeyLayout(batch.schema)

    restored = pa.record_batch(layout.decode(layout.encode(batch)), schema=batch.schema)
    assert repr(restored.to_pylist()) == repr(batch.to_pylist())
    assert len(set(hashes_of(layout.encode(batch)).tolist())) == 3


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_are_equal_as_numbers(kind: pa.DataType) -> None:
    width = kind.bit_width
    payloads = {16: [0x7E00, 0xFE01, 0x7C01], 32: [0x7FC00000, 0xFFC00001, 0x7F800001]}
    wide = [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001]
    bits = np.array(payloads.get(width, wide), f"u{width // 8}")
    nans = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(bits)])
    zeros = pa.array(np.array([0.0, -0.0], f"f{width // 8}"))

    for array in (nans, zeros):
        batch = pa.record_batch([array], ["key"])
        assert len(set(bucket_of(batch, 2**31 - 1).tolist())) == 1
        encoded = KeyLayout(batch.schema).encode(batch)
        assert len({repr(keys.comparable(encoded, i)) for i in range(len(array))}) == 1


@pytest.mark.parametrize("collide", [False, True], ids=["", "one hash"])
@pytest.mark.parametrize("name", ["int64", "string", "struct", "decimal128"])
def test_the_order_is_that_of_the_keys_alone(name: str, collide: bool) -> None:
    kind, values = SAMPLES[name]
    values = [*values, None]
    found = set()
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(values))
        batch = column(kind, *(values[i] for i in order))
        encoded = KeyLayout(batch.schema).encode(batch)
        hashes = np.zeros(len(values), np.uint64) if collide else hashes_of(encoded)
        found.add(tuple(order[order_of(encoded, hashes)].tolist()))

    assert len(found) == 1


def test_without_keys_everything_is_in_the_first_bucket() -> None:
    rows = pa.record_batch({"a": pa.array([1, 2, 3])}).select([])

    assert bucket_of(rows, 7).tolist() == [0, 0, 0]
    assert bucket_of(rows, 7).dtype == np.int32
    with pytest.raises(InvalidInput):
        bucket_of(rows, 0)
