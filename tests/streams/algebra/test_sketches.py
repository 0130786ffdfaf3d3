import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams import algebra
from penstock.streams.algebra import Summary
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.algebra.sketches import hyperloglog
from tests.streams.algebra.merging import spread, summed_up

_cuts = st.lists(st.integers(0, 200), max_size=5)
_seeds = st.integers(0, 2**32)


def parts_of(asked: algebra.Aggregate, rows: pa.RecordBatch) -> list[pa.Array]:
    return Summary({"a": asked}, rows.schema).partial(rows, group_rows(rows.select(["k"])))


@pytest.mark.parametrize("error", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("count", [0, 1, 50, 5_000, 100_000])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float32()])
def test_distinct_values_are_about_as_many(count: int, error: float, kind: pa.DataType) -> None:
    """Hashes are the same every time; three standard errors hold 997 of 1000 such cases."""
    values = pa.array(np.arange(count) * 7 + 3).cast(kind)
    values = pa.concat_arrays([values, values.slice(0, count // 3), pa.nulls(1, kind)])
    rows = pa.record_batch({"k": pa.nulls(len(values), pa.int8()), "v": values})
    found = summed_up({"a": algebra.approx_distinct("v", error)}, rows, [count // 2, count], 1)
    about = found[None]["a"]
    assert abs(about - count) <= 3 * error * count
    if count <= 50 and error < 0.1:
        assert about == count


def test_errors_of_many_keys_are_as_stated() -> None:
    count, keys = 2_000, 300
    rows = spread(list(range(count * keys)), pa.int64(), keys)
    found = summed_up({"a": algebra.approx_distinct("v", 0.05)}, rows)
    errors = np.array([each["a"] / count - 1 for each in found.values()])
    assert 0.02 < math.sqrt((errors**2).mean()) <= 0.05
    assert abs(errors.mean()) < 0.01


@given(st.lists(st.integers(0, 400), max_size=200), _cuts, _seeds)
@settings(deadline=None, max_examples=60)
def test_how_hashes_are_merged_does_not_show(values: list[int], cuts: list[int], seed: int) -> None:
    """In lists and in registers, which 64 bytes have room for 16 of the former."""
    asked = {"a": algebra.approx_distinct("v", 0.2)}
    rows = spread(values, pa.int64(), 2)
    assert summed_up(asked, rows, cuts, seed) == summed_up(asked, rows)


def test_a_key_with_few_values_is_small() -> None:
    asked = algebra.approx_distinct("v", 0.01)
    for count, size in ((10, 40), (4095, 16380), (4096, 16384), (50_000, 16384)):
        (part,) = parts_of(asked, spread(list(range(count)), pa.int64(), 1))
        assert len(part[0].as_py()) == size


def test_of_hashes_that_begin_alike_the_rarest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = np.uint64(77 << 38)
    hashes = begin | np.array([1 << 37, 1 << 30, 1 << 36], np.uint64)
    monkeypatch.setattr(hyperloglog, "hashes_of", lambda keys: hashes)
    (part,) = parts_of(algebra.approx_distinct("v"), spread([1, 2, 3], pa.int64(), 1))
    assert int.from_bytes(part[0].as_py(), "little") == 77 << 6 | 8


_numbers = st.floats(allow_nan=True) | st.sampled_from(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.99,
        1.01,
        1e-300,
        1e300,
        1.7976931348623157e308,
        2.2250738585072014e-308,
    ]
)
QS = [0, 0.1, 0.5, 0.9, 1]


@pytest.mark.parametrize("error", [0.001, 0.01, 0.2])
@given(st.lists(_numbers, min_size=1, max_size=60), _cuts, _seeds)
@settings(deadline=None, max_examples=40)
def test_quantiles_are_as_near_as_stated(
    error: float, values: list[float], cuts: list[int], seed: int
) -> None:
    asked = {"about": algebra.approx_quantile("v", QS, error), "exact": algebra.quantile("v", QS)}
    rows = spread(values, pa.float64(), 2)
    found = summed_up(asked, rows, cuts, seed)
    for each in found.values():
        for about, exact in zip(each["about"], each["exact"], strict=True):
            if math.isnan(exact) or math.isinf(exact):
                assert repr(about) == repr(exact)
            else:
                tiny = 2.3e-308 if abs(exact) < 2.3e-308 else 0.0
                assert abs(about - exact) <= error * (1 + 1e-9) * abs(exact) + tiny
    at_once = summed_up(asked, rows)
    assert repr([found[key] for key in sorted(found)]) == repr(list(at_once.values()))


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.decimal128(12, 2), pa.uint64()])
def test_quantiles_of_every_kind_of_number(kind: pa.DataType) -> None:
    values = pa.array(range(1, 1001), pa.float64()).cast(kind).to_pylist()
    found = summed_up({"q": algebra.approx_quantile("v", 0.99)}, spread(values, kind, 1))
    assert found[0]["q"] == pytest.approx(990, rel=0.01)


def test_bins_follow_a_table_and_are_as_few_as_stated() -> None:
    rng = np.random.default_rng(3)
    numbers = 10 ** rng.uniform(0, 3, 20_000)
    asked = algebra.approx_quantile("v", 0.5)
    bins, _ = parts_of(asked, spread(numbers.tolist(), pa.float64(), 1))
    assert 300 < len(bins[0].as_py()) <= 3 * 116
    values = np.concatenate([numbers, numbers[5_000:]])
    weights = np.repeat([1, -1], [20_000, 15_000])
    rows = pa.record_batch({"k": pa.nulls(35_000), "v": values, "_weight": pa.array(weights)})
    rows = rows.cast(pa.schema([("k", pa.int8()), ("v", pa.float64()), ("_weight", pa.int64())]))
    found = summed_up({"a": asked, "e": algebra.quantile("v", 0.5)}, rows, [9_000, 30_000], 2)
    assert found[None]["e"] == np.sort(numbers[:5_000])[2_499]
    assert found[None]["a"] == pytest.approx(found[None]["e"], rel=0.01)


@given(st.lists(st.integers(0, 12), max_size=200), _cuts, _seeds)
@settings(deadline=None, max_examples=80)
def test_counts_of_frequent_values_are_as_near_as_stated(
    values: list[int], cuts: list[int], seed: int
) -> None:
    error, k = 0.2, 5
    asked = {"about": algebra.approx_top("v", k, error), "exact": algebra.top("v", 100)}
    for each in summed_up(asked, spread(values, pa.int64(), 2), cuts, seed).values():
        exact = {entry["value"]: entry["count"] for entry in each["exact"]}
        total = sum(exact.values())
        about = {entry["value"]: entry["count"] for entry in each["about"]}
        assert list(about.values()) == sorted(about.values(), reverse=True)
        for value, count in exact.items():
            assert count - error * total <= about.get(value, 0) <= count
        if len(exact) <= math.ceil(1 / error):
            assert each["about"] == each["exact"][:k]


def test_frequent_values_take_bounded_room() -> None:
    values: list[Any] = [f"v{i}" for i in range(5_000)] + ["often"] * 100
    (kept, counts, missed) = parts_of(
        algebra.approx_top("v", 1, error=0.1), spread(values, pa.string(), 1)
    )
    assert kept.to_pylist() == [["often"]]
    assert (counts.to_pylist(), missed.to_pylist()) == ([[99]], [1])
