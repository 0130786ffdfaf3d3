from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams.source.classes import (
    FUTURE,
    LATE,
    MISSING,
    ON_TIME,
    STRAGGLER,
    Promise,
    classify,
)
from penstock.streams.source.event_time import TIMES, EventTime, Rule
from penstock.streams.source.progress import Progress

SECOND = 1_000_000
FIRST, LAST = TIMES.start, TIMES.stop - 1


def classes(
    times: list[int | None],
    rule: Rule,
    *,
    latest: list[int] | int | None = None,
    progress: Progress | None = None,
    promises: list[Promise] | None = None,
) -> list[int]:
    found = classify(
        np.array([time or 0 for time in times], np.int64),
        np.array([time is not None for time in times], np.bool_),
        np.array(latest, np.int64) if isinstance(latest, list) else latest,
        rule,
        progress or Progress(0),
        promises or [],
    )
    result: list[int] = found.tolist()
    return result


def one_by_one(
    times: list[int | None],
    rule: Rule,
    latest: list[int] | None,
    promises: list[Promise],
) -> tuple[list[int], Progress]:
    """What the words say, a row at a time."""
    progress, found = Progress(0), []
    for place in range(len(times) + 1):
        for promise in promises:
            if promise.before == place:
                progress.promise(promise.producer, promise.time)
        if place == len(times):
            break
        time, clock = times[place], progress.clock(rule)
        if time is None:
            found.append(MISSING)
            continue
        if latest is not None and time > latest[place]:
            found.append(FUTURE)
            continue
        if clock is None or time >= clock:
            found.append(ON_TIME)
        elif time >= clock - rule.correct_for:
            found.append(STRAGGLER)
        else:
            found.append(LATE)
        progress.high = time if progress.high is None else max(progress.high, time)
    return found, progress


@st.composite
def partitions(
    draw: st.DrawFn,
) -> tuple[list[int | None], Rule, list[int] | None, list[Promise], list[int]]:
    instants = st.integers(-30, 30) | st.sampled_from([FIRST, FIRST + 1, LAST - 1, LAST])
    times = draw(st.lists(st.none() | instants, max_size=25))
    durations = st.integers(0, 20) | st.just(EventTime(wait="3660000 days").rule().wait)
    rule = Rule(
        wait=draw(st.none() | durations),
        correct_for=draw(durations) or 0,
        guard=0,
    )
    latest = None
    if draw(st.booleans()):
        latest = draw(st.lists(instants, min_size=len(times), max_size=len(times)))
    places = sorted(draw(st.lists(st.integers(0, len(times)), max_size=4)))
    promises = [Promise(place, draw(st.sampled_from("ab")), draw(instants)) for place in places]
    cuts = sorted(draw(st.sets(st.integers(0, len(times)), max_size=5)))
    return times, rule, latest, promises, [0, *cuts, len(times)]


@settings(max_examples=400)
@given(partitions())
def test_any_cut_gives_what_one_row_at_a_time_gives(
    case: tuple[list[int | None], Rule, list[int] | None, list[Promise], list[int]],
) -> None:
    times, rule, latest, promises, cuts = case
    progress = Progress(0)
    found: list[int] = []
    left = list(promises)
    for start, stop in pairwise(cuts):
        # A promise between two ranges may be in the one or in the other.
        here = [each for each in left if each.before < stop or stop == len(times)]
        left = left[len(here) :]
        found += classes(
            times[start:stop],
            rule,
            latest=None if latest is None else latest[start:stop],
            progress=progress,
            promises=[each._replace(before=each.before - start) for each in here],
        )
    assert (found, progress) == one_by_one(times, rule, latest, promises)


def test_an_event_exactly_wait_behind_the_highest_is_on_time() -> None:
    rule = EventTime("at", wait="10s", correct_for="5s").rule()
    high = 1_000 * SECOND
    behind = [10 * SECOND, 10 * SECOND + 1, 15 * SECOND, 15 * SECOND + 1]
    found = classes([high, *(high - each for each in behind)], rule)
    assert found == [ON_TIME, ON_TIME, STRAGGLER, STRAGGLER, LATE]


def test_one_event_from_2099_is_future_and_the_clock_does_not_move() -> None:
    rule = EventTime("at", wait="10s").rule()
    appended = 1_000 * SECOND
    assert rule.guard is not None
    far = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp()) * SECOND
    progress = Progress(0)
    latest = appended + rule.guard
    assert classes([appended, far, appended], rule, latest=latest, progress=progress) == [
        ON_TIME,
        FUTURE,
        ON_TIME,
    ]
    assert progress.clock(rule) == appended - 10 * SECOND


def test_an_event_exactly_the_guard_ahead_is_not_from_the_future() -> None:
    assert classes([50, 51], Rule(wait=0, guard=0), latest=50) == [ON_TIME, FUTURE]
    assert classes([50, 51], Rule(wait=0, guard=0), latest=[49, 51]) == [FUTURE, ON_TIME]


def test_a_row_without_a_time_moves_nothing() -> None:
    progress = Progress(0)
    assert classes([None, None], Rule(wait=0), progress=progress) == [MISSING, MISSING]
    assert progress == Progress(0)


def test_the_clock_of_several_producers_is_the_least_of_their_promises() -> None:
    rule = Rule()
    promises = [Promise(0, "a", 100), Promise(1, "b", 200), Promise(2, "a", 150)]
    assert classes([99, 120, 120, 160], rule, promises=promises) == [LATE, ON_TIME, LATE, ON_TIME]


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_the_years_1_and_9999(chunk: int) -> None:
    rule = EventTime("at", wait="3660000 days", correct_for="3660000 days").rule()
    progress, found = Progress(0), []
    times: list[int | None] = [FIRST, LAST, FIRST]
    for start in range(0, 3, chunk):
        found += classes(times[start : start + chunk], rule, progress=progress)
    assert found == [ON_TIME] * 3
    assert classes([FIRST], Rule(wait=0), progress=progress) == [LATE]


def test_nothing_of_nothing() -> None:
    progress = Progress(0)
    assert classes([], Rule(wait=1), promises=[Promise(0, "a", 5)], progress=progress) == []
    assert progress.promised == {"a": 5}
