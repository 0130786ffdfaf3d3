"""What a node has come to, as its status tells it, from the last batch of its query."""

import logging
from collections.abc import Mapping

from penstock import clock
from penstock.runtime.declarations import Topic
from penstock.runtime.engine import Engine
from penstock.runtime.nodes import Built
from penstock.runtime.rate import Rate
from penstock.runtime.rejected_share import RejectedShare
from penstock.runtime.status import InputStatus, NodeStatus
from penstock.streams.source.offsets import SourceOffset, Totals, totals
from penstock.streams.source.spec import SourceSpec

logger = logging.getLogger(__name__)


class Teller:
    """Of one node."""

    def __init__(self, built: Built, status: NodeStatus | None = None) -> None:
        """`status` is one that told of the node before, and goes on telling."""
        self.built = built
        self._rate = Rate()
        self._shares: dict[str, RejectedShare] = {}
        self._told = -1
        self.status = status or NodeStatus(built.name)
        self.status.generation = built.folder.generation
        self.status.query = built.query
        self.status.inputs = [*map(self._input, built.sources), *map(_inner, built.inner)]
        self.status.output = built.output.topic if built.output else ""

    def _input(self, spec: SourceSpec) -> InputStatus:
        return InputStatus(
            spec.name,
            spec.topic,
            timed=spec.rule is not None,
            idle_after=spec.rule.idle_after if spec.rule else None,
            rejected_alarm=self.built.alarms.get(spec.name),
            source=spec.options(),
        )

    def note(self, engine: Engine, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Brings the status up to date with the last batch that the engine committed. `ends` says
        where sources end now, as far as that is known."""
        status, committed = self.status, engine.committed
        sources = {spec.name: spec for spec in self.built.sources}
        seen = status.read
        before = 0
        for told in status.inputs:
            spec = sources.get(told.name)
            if spec is None:
                _note_inner(told, committed.ends, committed.marks)
                told.clock = engine.clocks().get(told.name)
                continue
            offset = engine.offsets[told.name]
            began = engine.last_plan.offsets.get(told.name) if engine.last_plan else None
            self._note_input(spec, told, offset, began or offset)
            before += totals((began or offset).progress).read
            if told.name in ends:  # else the query itself says what is wrong with its topic
                told.end = {str(number): end for number, end in ends[told.name].items()}
        now = clock.monotonic()
        if committed.batch != self._told and committed.batch >= 0:
            self._told = status.batch = committed.batch
            status.batch_ms = engine.batch_ms
            status.error = ""
            status.uncomputable = dict(committed.rejected.get(status.name, {}))
            if status.read != seen:
                start = now - engine.batch_ms / 1_000
                self._rate.note(now, status.read, began=start, before=before)
            for operator in self.built.place.states.values():
                counts = committed.counts.get(operator, [])
                status.late, status.corrected, status.dropped = (
                    sum(each[place] for each in counts) for place in range(3)
                )
        self.note_time()

    def note_time(self) -> None:
        """Brings up to date what changes by itself, when there was no batch."""
        now = clock.monotonic()
        self.status.rows_per_second = self._rate.at(now)
        for told in self.status.inputs:
            if told.name in self._shares:
                self._tell_share(told, self._shares[told.name].at(now))

    def _note_input(
        self,
        spec: SourceSpec,
        told: InputStatus,
        offset: SourceOffset,
        began: SourceOffset,
    ) -> None:
        """`began` is where the last batch began."""
        progress = offset.progress
        told.read, told.kept, told.stragglers, rejected = totals(progress)
        told.rejected = dict(rejected)
        self._note_share(told, totals(began.progress))
        told.marks = sum(each.marks for each in progress.values())
        told.clock = offset.clock
        reached = {str(number): end for number, end in offset.next.items()}
        if reached != told.next and not began.is_settled:
            told.moved_ms = clock.now_ms()
        told.next = reached
        if spec.rule is not None:
            told.clocks = {str(n): each.clock(spec.rule) for n, each in progress.items()}

    def _note_share(self, told: InputStatus, before: Totals) -> None:
        now = clock.monotonic()
        share = self._shares.get(told.name)
        if share is None:
            share = RejectedShare(now, before.read, before.rejected.total())
            self._shares[told.name] = share
        share.note(now, told.read, sum(told.rejected.values()))

    def _tell_share(self, told: InputStatus, share: float | None) -> None:
        is_new = not told.alarm
        told.rejected_share = share
        if told.alarm and is_new:
            logger.warning("node %s: %s", self.built.name, told.alarm)


def _inner(topic: Topic) -> InputStatus:
    """What another node of the same query gives: it is read in the batch that makes it."""
    return InputStatus(topic.name, topic.topic, timed=topic.rule is not None)


def _note_inner(told: InputStatus, ends: dict[str, dict[int, int]], marks: dict[str, int]) -> None:
    written = ends.get(told.topic, {})
    reached = {str(number): end for number, end in sorted(written.items())}
    if reached != told.next:
        told.moved_ms = clock.now_ms()
    told.next, told.end = reached, dict(reached)
    told.marks = marks.get(told.topic, 0)
    told.read = told.kept = sum(written.values()) - told.marks
