"""What the next batch reads: how far in each partition, and what the clock is meanwhile."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock import clock
from penstock.errors import DataLost, InvalidInput
from penstock.log import Bounds
from penstock.streams.source.offsets import ProgressFiles, SourceOffset, clock_of
from penstock.streams.source.progress import Progress
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import SourceTopic, lost

_HALVINGS = 40  # of a span of milliseconds, which covers 30 years
_NEAR = 1.25  # times the rows that are allowed, which is near enough to stop looking


class Planner:
    """Plans the batches of one source of one query; one thread at a time.

    `idle_after` needs to know since when a partition is silent, and a rate how long ago the last
    batch was: both are counted from this planner's own beginning. All else is in the offsets.
    """

    def __init__(
        self, spec: SourceSpec, topic: SourceTopic, now_ms: Callable[[], int] = clock.now_ms
    ) -> None:
        self._spec = spec
        self._topic = topic
        self._now = now_ms
        self._files = ProgressFiles(spec.checkpoint, spec.name) if spec.checkpoint else None
        self._limit: dict[int, int] | None = None
        self._heard: dict[int, int] = {}  # when each partition last had something new
        self._last = now_ms()
        self._spent: list[tuple[int, int]] = []  # progress files that are of no more use soon

    def first(self) -> SourceOffset:
        starts = {number: self._start(number) for number in range(self._topic.partitions())}
        progress = {number: Progress(start) for number, start in starts.items()}
        timed = self._spec.rule is not None
        return SourceOffset(str(self._topic.id), self._now(), None, starts, progress, timed)

    def _start(self, partition: int) -> int:
        start, text = self._topic.bounds(partition), self._spec.start
        if text == "earliest":
            return start.start
        if text == "latest":
            return start.end
        try:
            wanted = json.loads(text)
        except ValueError:
            wanted = None
        if isinstance(wanted, int):
            return self._topic.offset_at(partition, wanted)
        if isinstance(wanted, dict):
            offset = int(wanted.get(str(partition), start.start))
            if not start.start <= offset <= start.end:
                raise InvalidInput(
                    f"{self._topic.name}/{partition} has no offset {offset} to start from",
                    hint=f"it holds {start.start} to {start.end}",
                )
            return offset
        raise InvalidInput(
            f"start={text!r} is not a place in a topic",
            hint='"earliest", "latest", milliseconds since 1970, or offsets as {"0": 42}',
        )

    def stop_at_present(self) -> None:
        """From now on nothing is read that was not there at this moment."""
        self._limit = {
            number: self._topic.bounds(number).end for number in range(self._topic.partitions())
        }

    def present(self, start: SourceOffset) -> SourceOffset:
        """The offset that a batch without limits would reach."""
        ends = {number: bounds.end for number, bounds in self._bounds(start).items()}
        return replace(start, next=ends)

    def next(self, start: SourceOffset) -> SourceOffset:
        """The end of the batch that begins at `start`, which is itself when there is none."""
        self._check_topic(start)
        bounds = self._bounds(start)
        begins = {number: start.next.get(number, bounds[number].start) for number in bounds}
        ends = self._admit(begins, {number: each.end for number, each in bounds.items()})
        now = self._now()
        for number in ends:
            if ends[number] > begins[number] or number not in self._heard:
                self._heard[number] = now
        has_rows = any(ends[number] > begins[number] for number in ends)
        if not has_rows and not self._spec.ticks:
            return start
        progress = self._progress(start, begins)
        rule = self._spec.rule
        time = None
        if rule is not None:
            silent = None if rule.idle_after is None else rule.idle_after // 1_000
            idle = frozenset(
                number
                for number, heard in self._heard.items()
                if silent is not None and now - heard >= silent
            )
            time = clock_of(progress, rule, idle, start.clock)
        if not has_rows and time == start.clock:
            return start
        self._forget(start)
        return replace(start, planned=now, clock=time, next=ends, progress=progress)

    def _check_topic(self, start: SourceOffset) -> None:
        if start.topic != str(self._topic.id):
            raise DataLost(
                f"topic {self._topic.name!r} was deleted and made again",
                hint="what this node has read is not what the topic holds now; start the node "
                "with --reset to read it from its beginning",
            )

    def _bounds(self, start: SourceOffset) -> dict[int, Bounds]:
        found = {}
        for number in range(self._topic.partitions()):
            bounds = self._topic.bounds(number)
            begin = start.next.get(number, bounds.start)
            if begin < bounds.start:
                raise lost(self._topic.name, number, begin, bounds.start)
            end = bounds.end if self._limit is None else self._limit.get(number, begin)
            if bounds.end < begin:
                raise DataLost(
                    f"{self._topic.name}/{number} ends at {bounds.end}, before offset {begin}, "
                    "which was read already",
                    hint="was the log restored from an older copy? start the node with --reset",
                )
            found[number] = Bounds(begin, max(begin, end))
        return found

    def _admit(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """As many rows as allowed, and those the oldest.

        So no partition of a topic that is read again runs far ahead of the others in time, and
        state does not swell with what has to wait for the slowest.
        """
        most = self._spec.max_rows
        if self._spec.rate is not None:
            now = self._now()
            most = min(most, max(1, (now - self._last) * self._spec.rate // 1_000))
            self._last = now
        waiting = {number: ends[number] - begins[number] for number in ends}
        if sum(waiting.values()) <= most:
            return dict(ends)
        if sum(1 for each in waiting.values() if each) > 1:
            ends = self._in_step(begins, ends, most)
            waiting = {number: ends[number] - begins[number] for number in ends}
        return _shared(begins, waiting, most)

    def _in_step(
        self, begins: Mapping[int, int], ends: Mapping[int, int], most: int
    ) -> dict[int, int]:
        """Ends at one moment of the records' timestamps for all partitions, just above `most`.

        Timestamps stand for event times here: this only says in which order rows are read.
        """
        low, high = 0, self._now() + 1

        def until(moment: int) -> dict[int, int]:
            return {
                number: max(
                    begins[number],
                    min(ends[number], self._topic.offset_at(number, moment)),
                )
                for number in ends
                if ends[number] > begins[number]
            }

        best = dict(ends)
        for _ in range(_HALVINGS):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            reached = until(middle)
            rows = sum(reached[number] - begins[number] for number in reached)
            if rows < most:
                low = middle
                continue
            high, best = middle, {**begins, **reached}
            if rows <= most * _NEAR:
                break
        return best

    def _progress(self, start: SourceOffset, begins: Mapping[int, int]) -> dict[int, Progress]:
        """The progress at the beginning of each partition's range."""
        progress = {}
        for number, begin in begins.items():
            known = start.progress.get(number) or Progress(begin)
            if known.at != begin:
                if self._files is None:
                    raise InvalidInput(
                        "a stream needs the folder of its checkpoint to keep its clock in",
                        hint='.option("checkpoint", ...) with the query\'s checkpointLocation',
                    )
                known = self._files.read(number, begin)
            progress[number] = known
        return progress

    def _forget(self, start: SourceOffset) -> None:
        """Removes the progress that the batch before last was planned with."""
        if self._files is None:
            return
        present = [
            (number, end) for number, end in start.next.items() if start.progress[number].at != end
        ]
        for number, end in self._spent:
            if (number, end) not in present:
                self._files.forget(number, end)
        self._spent = present


def _shared(begins: Mapping[int, int], waiting: Mapping[int, int], most: int) -> dict[int, int]:
    """`most` rows among the partitions, each the same share of what waits there."""
    total = sum(waiting.values())
    if total <= most:
        return {number: begins[number] + waiting[number] for number in waiting}
    taken = {number: each * most // total for number, each in waiting.items()}
    rest = most - sum(taken.values())
    for number in waiting:
        more = min(rest, waiting[number] - taken[number])
        taken[number] += more
        rest -= more
    return {number: begins[number] + taken[number] for number in taken}
