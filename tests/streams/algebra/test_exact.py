"""Sums, means and deviations of which rows are taken back, against fractions."""

import math
import random
import statistics
import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import StateDamaged
from penstock.streams import algebra
from penstock.streams.algebra import AggregateKernel
from penstock.streams.algebra.folds.exact import ExactSum
from tests.streams.algebra.batches import MISHAPS, Query, batch_of
from tests.streams.algebra.merging import summed_up

SCHEMA = pa.schema([("k", pa.int8()), ("v", pa.float64()), ("_weight", pa.int64())])
ASKED = {"s": algebra.sum("v"), "m": algebra.mean("v"), "d": algebra.stddev("v")}
Change = tuple[float, int]

_EDGES = [0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1e308, -1e308, 1.7976931348623157e308, 0.1, 1e20]
_ODD = [math.nan, math.inf, -math.inf]
doubles = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(_EDGES)
any_doubles = doubles | st.sampled_from(_ODD)


@st.composite
def histories(draw: Any, values: st.SearchStrategy[float]) -> tuple[list[Change], list[float]]:
    """Rows that come, and some that go again; and what is left."""
    there: list[float] = []
    changes: list[Change] = []
    for _ in range(draw(st.integers(0, 14))):
        if there and draw(st.booleans()):
            gone = there.pop(draw(st.integers(0, len(there) - 1)))
            changes.append((gone, -1))
        else:
            often = draw(st.sampled_from([1, 1, 1, 3]))
            came = draw(values)
            there += [came] * often
            changes.append((came, often))
    return changes, there


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def wanted_sum(left: Sequence[float]) -> float | None:
    if not left:
        return None
    odd = {each for each in left if math.isinf(each)}
    if any(map(math.isnan, left)) or len(odd) == 2:
        return math.nan
    return odd.pop() if odd else nearest(sum(map(Fraction, left), Fraction(0)))


def wanted_deviation(left: Sequence[float]) -> float | None:
    if len(left) < 2:
        return None
    if not all(map(math.isfinite, left)):
        return math.nan
    return nearest(_root(statistics.variance(map(Fraction, left))))


def _root(square: Fraction) -> Fraction:
    """To 80 bits and more."""
    shift = 2 * max(0, 100 - square.numerator.bit_length() + square.denominator.bit_length())
    return Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << shift // 2)


def rows_of(changes: Sequence[Change], key: int = 1) -> list[dict[str, Any]]:
    return [{"k": key, "v": value, "_weight": weight} for value, weight in changes]


def same(one: float | None, other: float | None) -> bool:
    return repr(one) == repr(other)


@settings(max_examples=300)
@given(
    history=histories(any_doubles),
    cuts=st.lists(st.integers(0, 14), max_size=4),
    seed=st.integers(0, 99),
)
@example(([(1.0, 1), (2.0, 1), (1e308, 3), (1e308, -1), (1e308, -2)], [1.0, 2.0]), [1, 2, 3], 0)
@example(([(1.0, 1), (2.0, 1), (1e20, 1), (1e20, -1)], [1.0, 2.0]), [1, 2, 3], 0)
@example(([(1e308, 3)], [1e308] * 3), [], 0)
@example(([(2.0**53, 1), (1.0, 1), (5e-324, 1)], [2.0**53, 1.0, 5e-324]), [], 0)
def test_what_is_left_is_what_counts(
    history: tuple[list[Change], list[float]], cuts: list[int], seed: int
) -> None:
    changes, left = history
    found = summed_up(ASKED, batch_of(SCHEMA, rows_of(changes)), cuts, seed)
    if not changes:
        return
    total = wanted_sum(left)
    assert same(found[1]["s"], total)
    if total is not None and math.isinf(total) and all(map(math.isfinite, left)):
        exact = nearest(sum(map(Fraction, left), Fraction(0)) / len(left))
        assert found[1]["m"] == pytest.approx(exact, rel=2**-52)
    else:
        assert same(found[1]["m"], None if total is None else total / len(left))
    deviation, wanted = found[1]["d"], wanted_deviation(left)
    if wanted is None or math.isnan(wanted) or math.isinf(wanted):
        assert same(deviation, wanted)
    else:
        assert deviation == pytest.approx(wanted, rel=2**-50, abs=5e-324)


@settings(max_examples=40)
@given(history=histories(doubles), mishap=st.sampled_from(MISHAPS), seed=st.integers(0, 99))
def test_batches_and_mishaps_do_not_show(
    tmp_path_factory: pytest.TempPathFactory,
    history: tuple[list[Change], list[float]],
    mishap: str,
    seed: int,
) -> None:
    changes, left = history
    query = Query(tmp_path_factory.mktemp("query"), AggregateKernel("k", ASKED, SCHEMA))
    dice = random.Random(seed)
    at = 0
    while at < len(changes):
        size = dice.randint(1, 4)
        query.batch([batch_of(SCHEMA, rows_of(changes[at : at + size]))], mishap)
        at += size
    table = {row["s"] for row in query.changes if row["_weight"] == 1}
    assert query.state_rows() == bool(left)
    if left:
        assert wanted_sum(left) in table
        assert same(query.changes[-1]["s"], wanted_sum(left))


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), gone=st.integers(0, 5))
def test_means_of_integers_are_exact(values: list[int], gone: int) -> None:
    schema = SCHEMA.set(1, pa.field("v", pa.int64()))
    left = values[gone:]
    rows = rows_of([(each, 1) for each in values] + [(each, -1) for each in values[:gone]])
    found = summed_up({"m": algebra.mean("v"), "d": algebra.stddev("v")}, batch_of(schema, rows))
    assert found[1]["m"] == (sum(left) / 1 / len(left) if left else None)
    if len(left) > 1:
        assert found[1]["d"] == pytest.approx(wanted_deviation(left), rel=2**-50)


def test_many_groups_need_more_room_than_is_guessed() -> None:
    """Cells as wide as they get, in groups whose rows are apart."""
    spread_out = [1e308, 1.0, 1e-300, 5e-324]
    rows = [
        {"k": key, "v": value, "_weight": 1} for value in spread_out for key in range(-128, 128)
    ]
    found = summed_up({"s": algebra.sum("v")}, batch_of(SCHEMA, rows), [100, 500], 3)
    assert [each["s"] for each in found.values()] == [math.fsum(spread_out)] * 256


def test_equal_totals_are_equal_bytes() -> None:
    schema = SCHEMA.append(pa.field("t", pa.int8()))
    one, other = [(0.1, 1), (1e300, 1), (-7.5, 2), (1e300, -1)], [(-7.5, 2), (0.1, 1)]
    summaries = []
    for changes in (one, other):
        kernel = AggregateKernel("k", ASKED, schema)
        summaries.append(kernel.partial(batch_of(schema, rows_of(changes))))
    assert summaries[0].equals(summaries[1])


@pytest.mark.parametrize("cell", [b"\0", b"\0\0", b"\0\0abc", b"\xff\xff" + b"a" * 4, b"H\0abcd"])
def test_a_damaged_total_is_refused(cell: bytes) -> None:
    counts = [pa.array([1])] + [pa.array([0])] * 3
    with pytest.raises(StateDamaged, match="a total"):
        ExactSum("v", mean=False).result([pa.array([cell], pa.binary()), *counts])


def test_a_total_that_is_nothing_leaves_no_state(tmp_path: Path) -> None:
    query = Query(tmp_path, AggregateKernel("k", ASKED, SCHEMA))
    nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    for changes in ([(0.1, 1), (math.nan, 1)], [(nan, -1), (1e308, 2)], [(1e308, -2), (0.1, -1)]):
        query.batch([batch_of(SCHEMA, rows_of(changes))])
    assert query.state_rows() == 0


def test_an_overflow_goes_with_the_rows_that_caused_it(tmp_path: Path) -> None:
    query = Query(tmp_path, AggregateKernel("k", ASKED, SCHEMA))
    for changes in ([(1.0, 1), (2.0, 1)], *([(1e308, weight)] for weight in (1, 1, -1, -1))):
        query.batch([batch_of(SCHEMA, rows_of(changes))])
    sums = [row["s"] for row in query.changes if row["_weight"] == 1]
    assert sums == [3.0, 1e308, math.inf, 1e308, 3.0]
    assert query.changes[-1]["m"] == 1.5
    assert query.changes[-1]["d"] == pytest.approx(math.sqrt(0.5))
