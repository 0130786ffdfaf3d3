"""What the next batch reads: how far in each partition, and what the clock is meanwhile."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock import clock
from penstock.errors import DataLost, InvalidInput
from penstock.log import Bounds
from penstock.streams.source.admission import Admission
from penstock.streams.source.event_time import TIMES
from penstock.streams.source.offsets import KeptProgress, ProgressFiles, SourceOffset, clock_of
from penstock.streams.source.progress import Progress
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.starts import starts_of
from penstock.streams.source.topic import SourceTopic, lost, made_again


class Planner:
    """Plans the batches of one source of one query; one thread at a time.

    `idle_after` needs to know since when a partition is silent, and a rate how long ago the last
    batch was: both are counted from this planner's own beginning. All else is in the offsets.
    """

    def __init__(
        self,
        spec: SourceSpec,
        topic: SourceTopic,
        now_ms: Callable[[], int] = clock.now_ms,
        *,
        kept: KeptProgress | None = None,
    ) -> None:
        """`kept` is where ranges leave their progress, files of the checkpoint unless given."""
        self._spec = spec
        self._topic = topic
        self._now = now_ms
        self._files = kept
        if kept is None and spec.checkpoint:
            self._files = ProgressFiles(spec.checkpoint, spec.name)
        self._admission = Admission(topic, spec.max_rows, spec.rate, now_ms)
        self._limit: dict[int, int] | None = None
        self._heard: dict[int, int] = {}  # when each partition last had something unread
        self._planned = 0  # when a batch was planned last
        self._known: dict[int, Progress] = {}  # as read from the files last
        self._at_first: dict[int, int] | None = None  # where a table ended at the first planning

    def first(self) -> SourceOffset:
        """Where the source begins, decided once: a restart before the first batch keeps to it."""
        kept = self._files.read_first() if self._files else None
        if kept is not None:
            return SourceOffset.from_json(kept)
        starts = starts_of(self._topic, self._spec.start)
        progress = {number: Progress(start) for number, start in starts.items()}
        timed = self._spec.rule is not None
        first = SourceOffset(
            self._spec.name, str(self._topic.id), self._now(), None, starts, progress, timed
        )
        if self._files is not None:
            self._files.write_first(first.as_json())
        return first

    def stop_at_present(self) -> None:
        """From now on nothing is read that was not there at this moment."""
        self._limit = {
            number: self._topic.bounds(number).end for number in range(self._topic.partitions())
        }

    def stop_at(self, ends: Mapping[int, int]) -> None:
        """From now on nothing is read beyond these offsets."""
        self._limit = dict(ends)

    def present(self, start: SourceOffset) -> SourceOffset:
        """The offset that a batch without limits would reach."""
        unread = self._unread(start)
        return replace(start, next={number: unread[number].end for number in start.next})

    def next(self, start: SourceOffset) -> SourceOffset:
        """The end of the batch that begins at `start`, which is itself when there is none."""
        unread = self._unread(start)
        ends = self._admission.admit(unread)
        now = self._planned = self._now()
        for number, (begin, end) in unread.items():
            if end > begin or number not in self._heard:
                self._heard[number] = now
        has_rows = any(ends[number] > begin for number, (begin, _) in unread.items())
        if has_rows:
            self._check_topic(start)
        elif not self._spec.ticks:
            return start
        progress = self._progress(start, {number: begin for number, (begin, _) in unread.items()})
        rule = self._spec.rule
        time = None
        if rule is not None and rule.until_read:
            if self._at_first is None:
                self._at_first = {number: end for number, (_, end) in unread.items()}
            is_read = all(unread[number].start >= end for number, end in self._at_first.items())
            time = TIMES.stop if is_read else start.clock
        elif rule is not None:
            time = clock_of(progress, rule, self._idle(rule.idle_after, now), start.clock)
        if not has_rows and time == start.clock:
            return start
        if self._files is not None:
            # What the batch before began with is still asked for by those who watch it.
            self._files.forget_before({n: each.at for n, each in start.progress.items()})
        return replace(
            start, planned=now, clock=time, next=ends, progress=progress, timed=rule is not None
        )

    def next_idle(self) -> int | None:
        """When the next partition will count as idle, in milliseconds, if nothing comes; None when
        time alone changes nothing."""
        rule = self._spec.rule
        if rule is None or rule.idle_after is None or not self._spec.ticks:
            return None
        silent = rule.idle_after // 1_000
        moments = (at + silent for at in self._heard.values())
        return min((each for each in moments if each > self._planned), default=None)

    def _idle(self, idle_after: int | None, now: int) -> frozenset[int]:
        if idle_after is None:
            return frozenset()
        silent = idle_after // 1_000
        return frozenset(number for number, at in self._heard.items() if now - at >= silent)

    def _check_topic(self, start: SourceOffset) -> None:
        if start.topic != str(self._topic.id):
            raise made_again(self._topic.name)

    def _unread(self, start: SourceOffset) -> dict[int, Bounds]:
        found = {}
        for number in range(self._topic.partitions()):
            bounds = self._topic.bounds(number)
            begin = start.next.get(number, bounds.start)
            if not bounds.start <= begin <= bounds.end:
                self._check_topic(start)
                raise self._gone(number, begin, bounds)
            end = bounds.end if self._limit is None else self._limit.get(number, begin)
            found[number] = Bounds(begin, max(begin, end))
        return found

    def _gone(self, partition: int, begin: int, bounds: Bounds) -> DataLost:
        if begin < bounds.start:
            return lost(self._topic.name, partition, begin, bounds.start)
        return DataLost(
            f"{self._topic.name}/{partition} ends at {bounds.end}, before offset {begin}, "
            "which was read already",
            hint="was the log restored from an older copy? start the node with --reset",
        )

    def _progress(self, start: SourceOffset, begins: Mapping[int, int]) -> dict[int, Progress]:
        """The progress at the beginning of each partition's range."""
        progress = {}
        for number, begin in begins.items():
            known = start.progress.get(number) or Progress(begin)
            if known.at != begin:
                known = self._left(number, begin)
            progress[number] = known
        return progress

    def _left(self, partition: int, end: int) -> Progress:
        """The progress that a range left at its end."""
        if self._files is None:
            raise InvalidInput(
                "a stream needs the folder of its checkpoint to keep its clock in",
                hint='.option("checkpoint", ...) with the query\'s checkpointLocation',
            )
        known = self._known.get(partition)
        if known is None or known.at != end:
            known = self._known[partition] = self._files.read(partition, end)
        return known.copy()  # who reads on from it moves it
