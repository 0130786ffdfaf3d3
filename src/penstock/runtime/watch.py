"""Watching one node: its query, what it has come to, and when to start it again after a failure."""

import json
import logging
import math
import re
from collections import Counter
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from penstock import clock
from penstock.errors import ForeignCheckpoint, NodeChanged, PenstockError, TopicExists, WriterFenced
from penstock.runtime.installation import Installation
from penstock.runtime.nodes import Built, writer_name
from penstock.runtime.rate import Rate
from penstock.runtime.rejected_share import RejectedShare
from penstock.runtime.status import InputStatus, NodeStatus
from penstock.streams.source.offsets import ProgressFiles, SourceOffset, Totals, totals
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import SourceTopic, open_topic
from penstock.streams.state import clean, counted

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_KEPT_BATCHES = 100  # as many as Spark keeps offsets of
_CLEAN_EVERY = 20
_PUBLISH_AGAIN = 10.0

# What starting again does not mend. A node that is fenced runs in another process, which would be
# fenced in turn.
_LASTING = tuple(
    each.__name__ for each in (WriterFenced, NodeChanged, ForeignCheckpoint, TopicExists)
)
_OURS = re.compile(r"penstock\.errors\.(\w+): (.+?(?:\n  hint: [^\n]+)?)(?=\n|$)")


class Watch:
    def __init__(self, installation: Installation, built: Built) -> None:
        self._installation = installation
        self._built = built
        self._query: StreamingQuery | None = None
        self._topics: dict[str, SourceTopic] = {}
        self._pause = _FIRST_PAUSE
        self._retry_at = 0.0
        self._cleaned = -1
        self._counted = -1
        self._rate = Rate()
        self._shares: dict[str, RejectedShare] = {}
        self._publish_at = 0.0
        self._published: dict[tuple[str, int], int] = {}
        self.status = NodeStatus(
            built.name,
            generation=built.folder.generation,
            inputs=[
                InputStatus(
                    each.name,
                    each.topic,
                    timed=each.rule is not None,
                    idle_after=each.rule.idle_after if each.rule else None,
                    rejected_alarm=built.alarms.get(each.name),
                    source=each.options(),
                )
                for each in built.sources
            ],
            output=built.output.topic if built.output else "",
        )

    @property
    def name(self) -> str:
        return self._built.name

    @property
    def inputs(self) -> tuple[str, ...]:
        return self._built.node.inputs

    def start(self, *, once: bool = False) -> None:
        """A failure is noted, not raised: the others go on."""
        try:
            self._query = self._installation.start(self._built, once=once)
            self.status.turn("running")
            self.status.retry_at = None
            logger.info("node %s runs%s", self.name, " again" if self.status.restarts else "")
        except Exception as error:  # whatever a node's code or Spark raises
            self._failed(error)

    def finish(self, within: float | None = None) -> bool:
        """Waits for a query that was started `once`, or so many seconds; true when it has ended."""
        query = self._query
        if query is None:
            return True
        try:
            if within is None:
                query.awaitTermination()
            elif not query.awaitTermination(within):  # type: ignore[arg-type]
                self._note(query)
                return False
        except StreamingQueryException as error:
            self._failed(error)
        self.look()
        return True

    def reach_end(self) -> bool:
        """Starts the node if need be, and waits until it has read all there is.

        False when it failed on the way; the next call starts it again.
        """
        if self._query is None:
            self.start()
        if self._query is not None:
            try:
                self._query.processAllAvailable()
                self._note(self._query)
            except StreamingQueryException as error:
                self._failed(error)
        return self._query is not None

    def look(self) -> None:
        """Brings the status up to date, and starts the node again when it is time."""
        if self._query is None:
            if self.status.state == "failed" and clock.monotonic() >= self._retry_at:
                self.status.restarts += 1
                self.start()
            return
        self._note(self._query)
        if self._query.isActive:
            is_busy = self.status.lag or self._query.status["isDataAvailable"]
            self.status.turn("running" if is_busy else "waiting")
            return
        error = self._query.exception()
        self._query = None
        if error is not None:
            self._failed(error)

    def stop(self, patience: float) -> None:
        """Between two batches if one ends in time; what is interrupted is run again later."""
        query = self._query
        self._close_topics()
        if query is None:
            return
        deadline = clock.monotonic() + patience
        while query.isActive and query.status["isTriggerActive"] and clock.monotonic() < deadline:
            clock.sleep(0.02)
        query.stop()
        self._note(query)
        self._query = None
        self.status.turn("stopped")
        self._close_topics()

    def _close_topics(self) -> None:
        for topic in self._topics.values():
            topic.close()
        self._topics.clear()

    def _failed(self, error: BaseException) -> None:
        self._query = None
        self.status.turn("failed")
        self.status.error = cause_of(error)
        if self.status.error.startswith(_LASTING):
            self.status.retry_at, self._retry_at = None, math.inf
            logger.error("node %s is not started again: %s", self.name, self.status.error)
            return
        self.status.retry_at = clock.now_ms() + round(self._pause * 1_000)
        self._retry_at = clock.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        logger.error("node %s failed: %s", self.name, self.status.error)

    def _note(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is None:
            return
        status = self.status
        self._pause = _FIRST_PAUSE  # a query that failed in its first batch has made no progress
        status.error = ""
        if "addBatch" in progress["durationMs"]:  # Spark also tells that there was nothing to do
            status.batch = progress["batchId"]
            status.batch_ms = progress["batchDuration"]
        seen = status.read
        ends = self._ends(progress["sources"])
        for source, told in zip(self._built.sources, status.inputs, strict=True):
            if source.name in ends:
                self._note_input(source, told, ends[source.name])
        now = clock.monotonic()
        if status.read != seen:
            began = now - status.batch_ms / 1_000
            before = sum(totals(offset.progress).read for offset in ends.values())
            self._rate.note(now, status.read, began=began, before=before)
        status.rows_per_second = self._rate.at(now)
        self._note_counts()
        self._publish_offsets()
        self._clean()

    def _ends(self, told: list[dict[str, Any]]) -> dict[str, SourceOffset]:
        """How far each source is, by name; Spark tells it in the order of its plan, and twice of
        one that stands there twice."""
        offsets = (_offset(one["endOffset"]) for one in told)
        return {each.source: each for each in offsets if each is not None}

    def _note_input(self, source: SourceSpec, told: InputStatus, offset: SourceOffset) -> None:
        files = ProgressFiles(source.checkpoint, source.name)
        progress = dict(offset.progress)
        for number, end in offset.next.items():
            if progress[number].at != end:
                try:
                    progress[number] = files.read(number, end)
                except ForeignCheckpoint:  # planning has picked it up in this moment
                    continue
        told.read, told.kept, told.stragglers, rejected = totals(progress)
        told.rejected = dict(rejected)
        self._note_share(told, totals(offset.progress))
        told.marks = sum(each.marks for each in progress.values())
        told.clock = offset.clock
        reached = {str(number): end for number, end in offset.next.items()}
        if reached != told.next and not offset.is_settled:
            told.moved_ms = clock.now_ms()
        told.next = reached
        if source.rule is not None:
            told.clocks = {str(n): each.clock(source.rule) for n, each in progress.items()}
        try:
            topic = self._topics.get(source.name)
            if topic is None:
                topic = self._topics[source.name] = open_topic(source.log, source.topic)
            told.end = {str(n): topic.bounds(n).end for n in range(topic.partitions())}
        except PenstockError:  # the node itself says what is wrong with its topic
            if topic := self._topics.pop(source.name, None):
                topic.close()

    def _note_share(self, told: InputStatus, before: Totals) -> None:
        now = clock.monotonic()
        share = self._shares.get(told.name)
        if share is None:
            share = RejectedShare(now, before.read, before.rejected.total())
            self._shares[told.name] = share
        share.note(now, told.read, sum(told.rejected.values()))
        is_new = not told.alarm
        told.rejected_share = share.at(now)
        if told.alarm and is_new:
            logger.warning("node %s: %s", self.name, told.alarm)

    def _publish_offsets(self) -> None:
        """Tells the log how far the node is, as a consumer group that every tool can show."""
        offsets: dict[tuple[str, int], int] = {}
        for told in self.status.inputs:
            for number, end in told.next.items():
                place = told.topic, int(number)
                # A topic may be read twice, as what is kept of it and what is rejected.
                offsets[place] = min(end, offsets.get(place, end))
        changed = {
            place: end for place, end in offsets.items() if self._published.get(place) != end
        }
        if not changed or clock.monotonic() < self._publish_at:
            return
        group = writer_name(self._installation.app.name, self._built.folder)
        try:
            self._installation.log.commit(group, changed)
            self._published |= changed
        except PenstockError as error:
            # The log is out of reach, as the node itself will find; others are not to wait for it.
            self._publish_at = clock.monotonic() + _PUBLISH_AGAIN
            logger.warning("the offsets of %s were not published: %s", self.name, error.message)

    def _note_counts(self) -> None:
        place, batch = self._built.place, self.status.batch
        if batch == self._counted:
            return
        try:
            found: Counter[str] = Counter()
            for name in place.releasing:
                found.update(counted(place.state, name, place.buckets, batch))
            for name, count in found.items():
                setattr(self.status, name, count)
            self._counted = batch
        except PenstockError:  # Spark may have left the operator out of this batch
            pass

    def _clean(self) -> None:
        batch = self.status.batch
        if batch // _CLEAN_EVERY == self._cleaned:
            return
        self._cleaned = batch // _CLEAN_EVERY
        place = self._built.place
        for operator in place.operators:
            try:
                clean(place.state, operator, place.buckets, keep_from=batch - _KEPT_BATCHES)
            except (PenstockError, OSError) as error:  # the node goes on, with more files
                logger.warning("old state of %s was not removed: %s", self.name, error)


def _offset(text: Any) -> SourceOffset | None:
    content = json.loads(text) if isinstance(text, str) else text
    return SourceOffset.from_json(content) if content else None


def cause_of(error: BaseException) -> str:
    """The one sentence that says what happened, out of what passed through several processes."""
    if isinstance(error, PenstockError):
        return f"{type(error).__name__}: {error}"
    text = str(error)
    found = _OURS.findall(text)
    if found:
        name, message = found[-1]
        return f"{name}: {message}"
    lines = text.splitlines()
    for number in reversed([n for n, line in enumerate(lines) if line.startswith("Traceback (")]):
        raised = [line for line in lines[number + 1 :] if line and not line.startswith(" ")]
        if raised:
            return raised[0].strip()[:500]
    # What Java raised stands after a colon, on the line after the call that it was raised in.
    lines = [line.strip().removeprefix(": ") for line in lines if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    return (raised or lines or [type(error).__name__])[-1 if raised else 0][:500]
