"""How much of what waits is read next: as many rows as allowed, and those the oldest.

So no partition of a topic that is read again runs far ahead of the others in time, and state does
not swell with what has to wait for the slowest. Timestamps of records stand for event times here:
this only says in which order rows are read.
"""

from collections.abc import Callable, Mapping

from penstock.log import Bounds
from penstock.streams.source.topic import SourceTopic

_NEAR = 1.25  # times the rows that are allowed, which is near enough to stop looking

Ends = dict[int, int]


class Admission:
    """One for a planner.

    It remembers how far it came: after a restart, batches of a backlog may end somewhere else.
    """

    def __init__(
        self, topic: SourceTopic, max_rows: int, rate: int | None, now_ms: Callable[[], int]
    ) -> None:
        self._topic = topic
        self._max_rows = max_rows
        self._rate = rate
        self._now = now_ms
        self._earned = 0.0  # rows that the rate allows by now
        self._counted = now_ms()
        self._moment = 0  # in milliseconds: what is older was admitted before, or nearly all of it
        self._step: int | None = None  # how much later the last batch ended

    def admit(self, unread: Mapping[int, Bounds]) -> Ends:
        """Where to end in each partition."""
        waiting = sum(end - begin for begin, end in unread.values())
        most = self._allowed(waiting)
        if waiting <= most:
            ends = {number: each.end for number, each in unread.items()}
        else:
            ends = _shared(self._oldest(unread, most), most)
        self._earned -= sum(ends[number] - each.start for number, each in unread.items())
        return ends

    def _allowed(self, waiting: int) -> int:
        if self._rate is None:
            return self._max_rows
        now = self._now()
        self._earned += (now - self._counted) * self._rate / 1_000
        self._counted = now
        if not waiting:  # what was not asked for is not saved up for longer than a second
            self._earned = min(self._earned, self._rate)
        return min(self._max_rows, max(1, int(self._earned)))

    def _oldest(self, unread: Mapping[int, Bounds], most: int) -> dict[int, Bounds]:
        """What is older than one moment in all partitions, and somewhat more than `most`."""
        busy = {number: each for number, each in unread.items() if each.end > each.start}
        if len(busy) < 2:
            return dict(unread)
        now = self._now() + 1
        # Where a record from the future was read, timestamps say nothing of those after it.
        timed = {
            number: busy[number]
            for number, end in self._until(busy, now).items()
            if end > busy[number].start
        }
        waiting = _rows(unread)
        blind = {
            number: Bounds(begin, begin + -(-(end - begin) * most // waiting))
            for number, (begin, end) in unread.items()
            if number not in timed
        }
        most -= _rows(blind)
        low, high, best = self._moment, None, timed
        step = self._step or now
        while high is None or high - low > 1:
            moment = min(low + step, now) if high is None else (low + high) // 2
            reached = {
                number: Bounds(busy[number].start, end)
                for number, end in self._until(timed, moment).items()
            }
            rows = _rows(reached)
            if rows >= most:
                high, best = moment, reached
                if rows <= most * _NEAR:
                    break
            elif moment >= now:
                break
            else:
                low, step = moment, step * 2
        if high is not None:
            self._step = max(1, high - self._moment)
            self._moment = low
        return {**blind, **best}

    def _until(self, unread: Mapping[int, Bounds], moment: int) -> Ends:
        found = self._topic.offsets_at(unread.keys(), moment) if unread else {}
        return {
            number: min(max(found[number], begin), end) for number, (begin, end) in unread.items()
        }


def _rows(unread: Mapping[int, Bounds]) -> int:
    return sum(end - begin for begin, end in unread.values())


def _shared(unread: Mapping[int, Bounds], most: int) -> Ends:
    """`most` rows among the partitions, each the same share of what waits there."""
    total = _rows(unread)
    if total <= most:
        return {number: each.end for number, each in unread.items()}
    ends = {
        number: begin + (end - begin) * most // total for number, (begin, end) in unread.items()
    }
    rest = most - sum(ends[number] - each.start for number, each in unread.items())
    for number, each in unread.items():
        more = min(rest, each.end - ends[number])
        ends[number] += more
        rest -= more
    return ends
