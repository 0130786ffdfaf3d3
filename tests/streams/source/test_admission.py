from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Record
from penstock.log import Bounds
from penstock.streams.source.admission import Admission
from tests.streams.source.listed import NOW, ListedTopic


class Backlog:
    """Admits what waits in a topic, batch by batch, as a planner does."""

    def __init__(
        self, *stamps: Sequence[int], max_rows: int = 10**6, rate: int | None = None
    ) -> None:
        records = [[Record(value=b"", timestamp=each) for each in part] for part in stamps]
        self.topic = ListedTopic(*records)
        self.now = NOW
        self.begins = dict.fromkeys(range(len(stamps)), 0)
        self._admission = Admission(self.topic, max_rows, rate, lambda: self.now)

    def next(self) -> dict[int, list[int]]:
        """The timestamps that are admitted of each partition."""
        ends = {number: self.topic.bounds(number).end for number in self.begins}
        unread = {number: Bounds(begin, ends[number]) for number, begin in self.begins.items()}
        found = self._admission.admit(unread)
        assert found.keys() == unread.keys()
        admitted = {
            number: [
                r.timestamp or 0 for r in self.topic.records[number][begin : found[number]] if r
            ]
            for number, (begin, _) in unread.items()
        }
        assert all(begin <= found[n] <= end for n, (begin, end) in unread.items())
        self.begins = found
        return admitted

    def rest(self, limit: int = 10_000) -> list[dict[int, list[int]]]:
        batches: list[dict[int, list[int]]] = []
        for _ in range(limit):
            admitted = self.next()
            if not any(admitted.values()):
                return batches
            batches.append(admitted)
        raise AssertionError("it does not end")


def sizes(batch: dict[int, list[int]]) -> list[int]:
    return [len(batch[number]) for number in sorted(batch)]


def test_all_where_it_is_little() -> None:
    backlog = Backlog(range(5), range(3), max_rows=8)
    assert sizes(backlog.next()) == [5, 3]
    assert sizes(backlog.next()) == [0, 0]
    assert backlog.topic.lookups == 0


def test_one_partition_needs_no_times() -> None:
    backlog = Backlog(range(100), [], max_rows=30)
    assert [sizes(batch) for batch in backlog.rest()] == [[30, 0]] * 3 + [[10, 0]]
    assert backlog.topic.lookups == 0


def test_a_partition_that_is_ahead_in_time_does_not_run_ahead() -> None:
    # The first has a row a second for an hour, the second one a millisecond, an hour later.
    slow, fast = range(0, 3_600_000, 1_000), range(3_600_000, 3_610_000)
    backlog = Backlog(
        [NOW - 10**7 + t for t in slow], [NOW - 10**7 + t for t in fast], max_rows=500
    )
    batches = backlog.rest()
    assert all(sum(sizes(batch)) <= 500 for batch in batches)
    assert len(batches) == 28
    first = [sizes(batch) for batch in batches[:7]]
    assert first == [[500, 0]] * 7
    assert sum(sizes(batch)[0] for batch in batches[:8]) >= 3_590


@pytest.mark.parametrize("density", [1, 7])
def test_partitions_stay_in_step(density: int) -> None:
    # As long a time in each, but the second has more rows.
    backlog = Backlog(range(0, 70_000, 70), range(0, 70_000, 70 // density), max_rows=200)
    for batch in backlog.rest()[:-1]:
        if all(batch.values()):
            assert abs(batch[0][-1] - batch[1][-1]) <= 70 * 200 / (1 + density)


def test_the_moment_is_found_with_few_questions() -> None:
    stamps = [NOW - 10**9 + t for t in range(0, 10**7, 1_000)]
    backlog = Backlog(stamps, stamps, max_rows=500)
    backlog.next()
    assert backlog.topic.lookups <= 45  # nothing is known at first
    backlog.topic.lookups = 0
    batches = backlog.rest()
    assert len(batches) == 39
    assert backlog.topic.lookups <= 6 * len(batches)


def test_many_rows_of_one_moment() -> None:
    backlog = Backlog([5] * 100, [5] * 300, [6] * 30, max_rows=40)
    batches = [sizes(batch) for batch in backlog.rest()]
    assert batches[0] == [10, 30, 0]
    assert [sum(batch) for batch in batches] == [40] * 10 + [30]
    assert batches[-1] == [0, 0, 30]


def test_a_record_from_the_future_does_not_keep_its_partition_waiting() -> None:
    wrong = NOW + 10**12
    backlog = Backlog([wrong, *range(1, 200)], range(100), max_rows=20)
    for _ in range(4):
        admitted = sizes(backlog.next())
        assert min(admitted) >= 5
        assert sum(admitted) == 20


timestamps = st.lists(st.integers(0, 50) | st.just(NOW + 5), max_size=40)


@given(st.lists(timestamps, min_size=1, max_size=4), st.integers(1, 30))
def test_all_of_any_backlog_is_admitted_and_never_more_than_allowed(
    stamps: list[list[int]], max_rows: int
) -> None:
    backlog = Backlog(*stamps, max_rows=max_rows)
    total = sum(map(len, stamps))
    batches = backlog.rest()
    assert sum(sum(sizes(batch)) for batch in batches) == total
    # Each is as full as it may be: the rows that wait are not held back for anything.
    assert [sum(sizes(batch)) for batch in batches[:-1]] == [max_rows] * (len(batches) - 1)


def test_a_rate() -> None:
    backlog = Backlog(range(10_000), max_rows=400, rate=100)
    admitted = []
    for wait in (1_000, 0, 500, 10, 10, 10, 10, 60_000):
        backlog.now += wait
        admitted.append(sum(sizes(backlog.next())))
    # A row is admitted whenever it is asked for, and paid back later.
    assert admitted == [100, 1, 49, 1, 1, 1, 1, 400]


def test_what_nobody_wanted_is_not_saved_up() -> None:
    backlog = Backlog([], rate=100)
    for _ in range(60):
        backlog.now += 1_000
        backlog.next()
    backlog.topic.records[0] += [Record(value=b"", timestamp=1)] * 1_000
    backlog.now += 500
    assert sum(sizes(backlog.next())) == 150
