import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock import Record
from penstock.errors import DataLost, ForeignCheckpoint, InvalidInput
from penstock.events.schema import parse_schema
from penstock.streams.source.event_time import TIMES, EventTime
from penstock.streams.source.offsets import ProgressFiles, SourceOffset
from penstock.streams.source.planning import Planner
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader
from penstock.streams.source.spec import SourceSpec
from tests.streams.source.listed import NOW, ListedTopic


def event(seconds: int) -> Record:
    at = NOW + seconds * 1_000
    return Record(value=json.dumps({"at": at}).encode(), timestamp=at)


class Query:
    """Runs batches as Spark does: an offset is planned, its ranges are read, and so on from it."""

    def __init__(self, topic: ListedTopic, folder: Path, **more: Any) -> None:
        rule = EventTime("at", wait="10s", idle_after="30s", guard="1 day").rule()
        told: dict[str, Any] = {"rule": rule, "ticks": True, **more}
        schema = parse_schema("at timestamp")
        self.spec = SourceSpec(
            "nowhere", topic.name, schema, name="listed", checkpoint=str(folder), **told
        )
        self.topic = topic
        self.folder = folder
        self.now = NOW
        self._reader = RowReader(self.spec)
        self.restart()
        self.at = self.planner.first()

    def restart(self) -> None:
        self.planner = Planner(self.spec, self.topic, lambda: self.now)

    def plan(self) -> SourceOffset:
        return self.planner.next(SourceOffset.from_json(self.at.as_json()))

    def run(self, end: SourceOffset) -> int:
        """Reads up to there, and goes on from there; how many rows came."""
        end = SourceOffset.from_json(json.loads(json.dumps(end.as_json())))
        rows = 0
        for number, until in end.next.items():
            progress = end.progress[number].copy()
            if until > progress.at:
                wanted = Range(number, until, progress, end.planned)
                rows += sum(each.num_rows for each in self._reader.read(self.topic, wanted))
                ProgressFiles(str(self.folder), "listed").write(number, progress)
        self.at = end
        return rows

    def batch(self) -> int | None:
        """The rows of the next batch; None when there is none."""
        end = self.plan()
        return None if end == self.at else self.run(end)

    @property
    def seconds(self) -> float | None:
        """The clock, since NOW."""
        return None if self.at.clock is None else (self.at.clock - NOW * 1_000) / 1_000_000

    @property
    def files(self) -> int:
        folder = self.folder / "progress" / "listed"
        return len(list(folder.iterdir())) if folder.exists() else 0


def test_a_batch_of_no_rows_when_the_clock_moves_and_only_then(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)], [event(5)]), tmp_path)
    assert (query.batch(), query.seconds) == (2, None)  # the clock is that before the batch
    assert (query.batch(), query.seconds) == (0, -10)
    assert query.batch() is None
    query.topic.records[0].append(event(1))
    assert (query.batch(), query.seconds) == (1, -10)
    assert (query.batch(), query.seconds) == (0, -9)
    query.topic.records[1].append(event(9))
    assert (query.batch(), query.seconds) == (1, -9)
    assert query.batch() is None  # the other one holds it


def test_no_ticks_for_those_who_do_not_need_them(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)]), tmp_path, ticks=False)
    assert query.batch() == 1
    assert query.batch() is None
    query.topic.records[0].append(event(1))
    assert (query.batch(), query.seconds) == (1, -10)


def test_a_source_without_event_time(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)]), tmp_path, rule=None)
    assert query.batch() == 1
    assert query.batch() is None
    assert "clock" not in query.at.as_json()


def test_a_table_holds_the_others_back_until_it_is_read(tmp_path: Path) -> None:
    """To where it ended when reading began: it may never be without something new."""
    rule = EventTime("at").of_table()
    query = Query(ListedTopic([event(0), event(1), event(2)]), tmp_path, rule=rule, max_rows=2)
    for number in range(3, 6):
        assert query.batch() == 2
        assert (query.at.clock is None) == (number < 5)
        query.topic.records[0] += [event(number), event(number)]
    assert query.at.clock == TIMES.stop

    empty = Query(ListedTopic([]), tmp_path / "empty", rule=rule)
    assert (empty.batch(), empty.at.clock) == (0, TIMES.stop)
    assert empty.batch() is None


def test_one_input_silent(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)], []), tmp_path)
    assert query.batch() == 1
    query.now += 29_999
    query.topic.records[0].append(event(30))
    assert (query.batch(), query.seconds) == (1, None)
    query.now += 1
    assert (query.batch(), query.seconds) == (0, 20)  # without partition 1
    query.topic.records[1] += [event(-100), event(-90)]
    assert (query.batch(), query.seconds) == (2, 20)
    assert query.batch() is None  # it counts again, and the clock does not go back
    query.topic.records[0].append(event(60))
    assert (query.batch(), query.seconds) == (1, 20)
    assert query.batch() is None


def test_when_the_next_partition_falls_idle(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)], []), tmp_path)
    assert query.batch() == 1
    assert query.planner.next_idle() == NOW + 30_000
    query.now += 10_000
    query.topic.records[0].append(event(10))
    assert query.batch() == 1
    assert query.planner.next_idle() == NOW + 30_000  # partition 1, in which nothing came
    query.now += 20_000
    assert query.batch() == 0
    assert query.planner.next_idle() == NOW + 40_000
    query.now += 10_000
    query.plan()
    assert query.planner.next_idle() is None  # time changes nothing any more


def test_only_idle_partitions_need_the_time(tmp_path: Path) -> None:
    rule = EventTime("at", wait="10s").rule()
    untimed: list[dict[str, Any]] = [{"rule": rule}, {"rule": None}, {"ticks": False}]
    for number, more in enumerate(untimed):
        query = Query(ListedTopic([event(0)]), tmp_path / str(number), **more)
        query.plan()
        assert query.planner.next_idle() is None


def test_a_partition_whose_rows_wait_is_not_idle(tmp_path: Path) -> None:
    query = Query(
        ListedTopic([event(t) for t in range(-900, -800)], [event(0)]), tmp_path, max_rows=10
    )
    for _ in range(9):
        query.now += 60_000
        assert query.batch() == 10
        assert query.at.next[1] == 0
        assert query.seconds is None


def test_one_event_from_2099_does_not_move_the_clock(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0), event(86_400 * 365 * 70)]), tmp_path)
    assert query.batch() == 1
    assert (query.batch(), query.seconds) == (0, -10)
    assert query.at.progress[0].rejected == {"future": 1}


def test_max_rows(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(t) for t in range(25)]), tmp_path, max_rows=10, ticks=False)
    assert [query.batch() for _ in range(4)] == [10, 10, 5, None]


def test_a_rate(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(t) for t in range(99)]), tmp_path, rate=10, ticks=False)
    query.now += 1_500
    assert query.batch() == 15


def test_up_to_the_present(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)], []), tmp_path, ticks=False)
    query.planner.stop_at_present()
    query.topic.records[0].append(event(1))
    query.topic.records[1].append(event(1))
    query.topic.records.append([event(1)])
    query.topic.starts.append(0)
    assert query.batch() == 1
    assert query.batch() is None


def test_all_at_once(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)] * 5, []), tmp_path, max_rows=1)
    start = query.planner.first()
    query.topic.records.append([event(0)])  # after the start was told
    query.topic.starts.append(0)
    assert query.planner.present(start).next == {0: 5, 1: 0}


def test_new_partitions_are_read_from_their_start(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)]), tmp_path, start="latest")
    assert query.batch() is None
    query.topic.records.append([event(-5), event(3)])
    query.topic.starts.append(0)
    assert query.batch() == 2
    assert query.at.next == {0: 1, 1: 2}


# What a restart finds


@pytest.mark.parametrize("ticks", [False, True])
def test_a_restart_in_the_middle_goes_on_as_if_there_was_none(tmp_path: Path, ticks: bool) -> None:
    seen: list[list[Any]] = []
    for restarts in (False, True):
        query = Query(ListedTopic([], []), tmp_path / str(restarts), ticks=ticks)
        query.topic.id = UUID(int=7)
        query.at.topic = str(query.topic.id)
        offsets = []
        for number in range(12):
            query.topic.records[number % 2].append(event(5 * number))
            for _ in range(3):
                end = query.plan()
                if restarts:  # planned again, and run twice
                    query.restart()
                    assert query.plan() == end
                    start = query.at
                    query.run(end)
                    query.at = start
                    query.restart()
                query.run(end)
                offsets.append(end.as_json())
        seen.append(offsets)
    assert seen[0] == seen[1]


def test_a_restart_in_the_middle_of_a_backlog(tmp_path: Path) -> None:
    ends = []
    for restarts in (False, True):
        events = ([event(t + n) for t in range(0, 40, n + 1)] for n in range(3))
        query = Query(ListedTopic(*events), tmp_path / str(restarts), max_rows=9)
        rows = 0
        while (more := query.batch()) is not None:
            rows += more
            if restarts:
                query.restart()
        assert rows == 40 + 20 + 14
        ends.append((query.at.clock, query.at.next, query.at.progress))
    assert ends[0] == ends[1]


def test_progress_files_are_few(tmp_path: Path) -> None:
    query = Query(ListedTopic([], []), tmp_path)
    for number in range(1_000):
        query.topic.records[number % 2].append(event(number))
        assert query.batch() == 1
        if number % 7 == 0:
            query.restart()
        assert query.files <= 5  # two for each partition, and where the source began


def test_a_progress_file_is_missing(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)]), tmp_path)
    query.batch()
    (path,) = (tmp_path / "progress" / "listed").glob("0-*")
    path.unlink()
    with pytest.raises(ForeignCheckpoint, match=path.name):
        query.batch()


def test_where_a_source_begins_is_decided_once(tmp_path: Path) -> None:
    topic = ListedTopic([event(0)])
    spec = replace(Query(topic, tmp_path / "other").spec, start="latest", checkpoint=str(tmp_path))
    first = Planner(spec, topic).first()
    topic.records[0].append(event(1))

    assert Planner(spec, topic).first() == first
    assert first.next == {0: 1}


def test_polling_reads_progress_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(ListedTopic([event(0)], []), tmp_path)
    query.batch()
    reads: list[int] = []
    read = ProgressFiles.read

    def counting(files: ProgressFiles, partition: int, end: int) -> Any:
        reads.append(end)
        return read(files, partition, end)

    monkeypatch.setattr(ProgressFiles, "read", counting)
    for _ in range(5):
        assert query.batch() is None
    assert reads == [1]


def test_a_stream_needs_its_checkpoint(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)]), tmp_path)
    query.batch()
    query.spec = SourceSpec(
        "nowhere", "listed", query.spec.schema, rule=query.spec.rule, ticks=True
    )
    query.restart()
    with pytest.raises(InvalidInput, match="checkpoint"):
        query.plan()


# What is lost


def test_retention_took_unread_records(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)] * 9), tmp_path, max_rows=3)
    query.batch()
    query.topic.starts[0] = 3
    assert query.batch() == 3
    query.topic.starts[0] = 8
    with pytest.raises(DataLost, match="records 6 to 7 of listed/0 are gone"):
        query.batch()


@pytest.mark.parametrize("count", [0, 3, 9])
def test_a_topic_was_deleted_and_made_again(tmp_path: Path, count: int) -> None:
    query = Query(ListedTopic([event(0)] * 3), tmp_path, ticks=False)
    query.batch()
    query.topic.id = uuid4()
    query.topic.records[0] = [event(0)] * count
    if count == 3:
        assert query.batch() is None  # nothing can be told from it yet
        query.topic.records[0].append(event(0))
    with pytest.raises(DataLost, match="deleted and made again"):
        query.batch()


def test_a_log_that_lost_its_end(tmp_path: Path) -> None:
    query = Query(ListedTopic([event(0)] * 3), tmp_path)
    query.batch()
    query.topic.records[0].pop()
    with pytest.raises(DataLost, match="listed/0 ends at 2, before offset 3"):
        query.batch()
