from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.source.event_time import Rule
from penstock.streams.source.progress import Progress


def some_progress() -> Progress:
    return Progress(7, 100, {"a": 30, "b": 40}, 2, 5, 4, 1, Counter(late=1))


def test_as_json() -> None:
    assert Progress.from_json(some_progress().as_json()) == some_progress()
    assert Progress.from_json(Progress(3).as_json()) == Progress(3)


def test_a_copy_is_moved_alone() -> None:
    copied = some_progress().copy()
    copied.promise("a", 99)
    copied.rejected["late"] += 1
    assert (copied.promised["a"], copied.rejected["late"]) == (99, 2)
    original = some_progress()
    changed = original.copy()
    changed.promise("c", 50)
    changed.rejected["future"] += 1
    assert original == some_progress()


@pytest.mark.parametrize(
    ("high", "promised", "wait", "clock"),
    [
        (None, {}, 10, None),
        (100, {}, 10, 90),
        (100, {}, None, None),
        (None, {"a": 30, "b": 40}, 10, 30),
        (100, {"a": 30, "b": 40}, 10, 90),
        (100, {"a": 95, "b": 97}, 10, 95),
        (100, {"a": 30}, None, 30),
    ],
)
def test_the_clock(
    high: int | None, promised: dict[str, int], wait: int | None, clock: int | None
) -> None:
    assert Progress(0, high, promised).clock(Rule(wait=wait)) == clock


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-100, 100))))
def test_no_promise_takes_the_clock_back(promises: list[tuple[str, int]]) -> None:
    progress, rule = Progress(0), Rule()
    for producer, time in promises:
        before = progress.clock(rule)
        progress.promise(producer, time)
        after = progress.clock(rule)
        assert after is not None
        assert before is None or after >= before
        assert progress.promised[producer] >= time
