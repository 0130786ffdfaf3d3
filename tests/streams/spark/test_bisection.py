"""The few that fail among many, found by trying parts of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.spark.query.bisection import TooMany, failing


@given(st.integers(1, 300), st.data())
def test_all_that_fail_are_found(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=20))
    tried = []

    def fails(start: int, stop: int) -> bool:
        tried.append((start, stop))
        return any(start <= each < stop for each in bad)

    assert failing(count, fails, most=20) == sorted(bad)
    assert len(tried) == len(set(tried)) <= 2 * len(bad) * count.bit_length()


@given(st.sets(st.integers(0, 10**6 - 1), min_size=11, max_size=200))
def test_too_many_are_noticed_before_each_is_found(bad: set[int]) -> None:
    trials = 0

    def fails(start: int, stop: int) -> bool:
        nonlocal trials
        trials += 1
        return any(start <= each < stop for each in bad)

    with pytest.raises(TooMany):
        failing(10**6, fails, most=10)
    assert trials <= 2 * 10 * 20


def test_nothing_fails_of_nothing() -> None:
    assert failing(0, lambda start, stop: True, most=1) == []
