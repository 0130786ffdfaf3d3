"""The batches of a query, one after the other: plan, run, publish, commit.

A plan is durable before its batch runs, so a batch that is run again after a crash reads the same
records at the same clock, and gives the same. It is published once by its number, and committed;
what it wrote can be seen then, in all views at once.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock import clock
from penstock.errors import ForeignCheckpoint, PenstockError
from penstock.log import Log
from penstock.runtime.news import News
from penstock.runtime.nodes import Built
from penstock.runtime.query_folder import (
    BESIDE,
    KEPT_BATCHES,
    CommittedBatch,
    PlannedBatch,
    QueryFolder,
)
from penstock.serve.offers import Published
from penstock.sinks.contract import Sink
from penstock.streams.source.offsets import SourceOffset, least_clock
from penstock.streams.source.planning import Planner
from penstock.streams.source.progress import Progress
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import open_topic
from penstock.streams.spark.blame import blame, blames
from penstock.streams.spark.crash import AFTER_COMMIT, BEFORE_COMMIT, Crash
from penstock.streams.spark.leaves import batch_frame
from penstock.streams.spark.publishing import Appended, Publisher, Written
from penstock.streams.spark.query.graph import QueryGraph
from penstock.streams.spark.query.job import BatchResult, QueryJob
from penstock.streams.spark.query.plan import BatchPlan, SourceRange
from penstock.streams.spark.query.rejections import rejected_topic
from penstock.streams.state import EMPTY, clean, settle

logger = logging.getLogger(__name__)

_PROMISE_EVERY = 1.0  # seconds between two promises to a topic that nobody waits for here
_CLEAN_EVERY = 20  # batches


@dataclass
class BuiltQuery:
    """A query and the nodes that run in it. `followed` are those whose topics another query of the
    app reads, `sinks` get the rows of a DataFrame, and `refused` says why it must not run."""

    name: str
    folder: QueryFolder
    graph: QueryGraph
    nodes: list[Built] = field(default_factory=list)
    sinks: list[tuple[str, DataFrame, Sink]] = field(default_factory=list)
    followed: frozenset[str] = frozenset()
    refused: dict[str, PenstockError] = field(default_factory=dict)

    @property
    def is_beside(self) -> bool:
        """Whether its nodes are to join the others when they have caught up."""
        return self.name.startswith(BESIDE)

    def blamed(self, error: BaseException) -> set[str]:
        """The nodes that an error is about, as far as it says; nobody else has to suffer for it."""
        found: set[str] = set()
        for kind, which in blames(error):
            match kind:
                case "leaf":
                    found |= self.graph.users.get(int(which), set())
                case "output":
                    found.add(self.graph.program.outputs[int(which)].node)
                case "source":
                    found |= {
                        each.name
                        for each in self.nodes
                        if which in [spec.name for spec in each.sources]
                    }
                case "phase":
                    found |= {
                        node
                        for leaf in self.graph.leaves
                        if leaf.frame is not None and leaf.phase == int(which)
                        for node in self.graph.users.get(leaf.number, ())
                    }
        return found


Offer = Callable[[int, Mapping[str, Published]], None]


class Engine:
    """Used by one thread. When a step raises, it is over: another one goes on from what is kept."""

    def __init__(
        self,
        query: BuiltQuery,
        publisher: Publisher,
        log: Log,
        offer: Offer = lambda batch, views: None,
    ) -> None:
        """`offer` is called with the rows of views that a batch has published, before it is
        committed. Raises ForeignCheckpoint, TopicNotFound."""
        self._offer = offer
        self.query = query
        self._publisher = publisher
        self._log = log
        self._folder = query.folder
        self._program = query.graph.program
        self._session: SparkSession = query.graph.session
        self._job: QueryJob | None = None
        self.committed = self._folder.commit(self._folder.committed) or CommittedBatch()
        last = self._folder.plan(self._folder.planned)
        self._unfinished = last if last and last.batch > self.committed.batch else None
        begins = self._folder.begins()
        self._kept = {spec.name: _KeptInMemory(spec.name, begins) for spec in self._program.sources}
        self._topics = {}
        for spec in self._program.sources:
            with blame("source", spec.name):
                self._topics[spec.name] = open_topic(spec.log, spec.topic)
        self._planners = {
            spec.name: Planner(spec, self._topics[spec.name], kept=self._kept[spec.name])
            for spec in self._program.sources
        }
        known = self.committed.offsets
        self.offsets: dict[str, SourceOffset] = {
            name: known[name] if name in known else planner.first()
            for name, planner in self._planners.items()
        }
        if begins != self._folder.begins():
            self._folder.write_begins(begins)
        self._present: set[str] = set()  # topics, once somebody had to ask
        self._promised: dict[str, tuple[int, float]] = {}  # by node: the clock, and when
        self.last_plan = last
        self.batch_ms = 0
        self.steps = 0  # batches that were finished, with all that can be told of them
        self._cleaner = ThreadPoolExecutor(1, "penstock-clean")  # beside: a disk may take its time
        self._cleaning: Future[None] = Future()
        self._cleaning.set_result(None)
        if unprimed := self._folder.unprimed:
            self._prime(unprimed)
        self.news = News(self._topics)

    # Steps

    def step(self, *, flush: bool = False) -> bool:
        """Runs a batch, if there is anything to do. With `flush` nobody is left waiting for the
        clock of what they read."""
        planned = self._unfinished or self._plan(flush=flush)
        if planned is None:
            return False
        began = clock.monotonic()
        self._run(planned)
        self._unfinished = None
        self.last_plan = planned
        self.batch_ms = round((clock.monotonic() - began) * 1_000)
        self.steps += 1
        return True

    def stop_at_present(self) -> None:
        """From now on nothing is read that was not there at this moment, but for what comes of it:
        the rejected rows of nodes of this query, which others of it read."""
        own = {rejected_topic(output.topic) for output in self._program.outputs}
        for spec in self._program.sources:
            if spec.topic not in own:
                self._planners[spec.name].stop_at_present()

    def stop_at(self, limits: Mapping[str, Mapping[int, int]]) -> None:
        """From now on nothing is read beyond these offsets."""
        for name, planner in self._planners.items():
            if name in limits:
                planner.stop_at(limits[name])

    @property
    def sources(self) -> list[SourceSpec]:
        return self._program.sources

    def has_news(self) -> bool:
        """Whether a topic has grown since the last plan."""
        return self.news.has_come(self.offsets)

    def ends(self, source: str) -> dict[int, int]:
        """Where the partitions of a source end now."""
        topic = self._topics[source]
        return {number: topic.bounds(number).end for number in range(topic.partitions())}

    def next_idle(self) -> int | None:
        """When a partition that stays silent will count as idle, in milliseconds: then there may be
        something to do without news. None when time alone changes nothing."""
        moments = (planner.next_idle() for planner in self._planners.values())
        return min((each for each in moments if each is not None), default=None)

    @property
    def owes_promises(self) -> bool:
        """Whether topics have not been told yet how far the clock is."""
        offsets = self.offsets
        return any(
            found is not None and found != self._promised.get(node, (None, 0.0))[0]
            for node, found in self._clocks({n: each.clock for n, each in offsets.items()})
        )

    def close(self) -> None:
        self.news.close()
        self._cleaner.shutdown()
        for topic in self._topics.values():
            topic.close()
        self._publisher.close()

    def _prime(self, sources: list[str]) -> None:
        """Reads the tables of these sources up to where they are, and tells nobody: what has read
        them before knows them, and only what changes from now on is news."""
        program = self._program
        leaves = {
            leaf
            for spec, leaf in zip(program.sources, program.source_leaves, strict=True)
            if spec.name in sources
        }
        takers = {leaf: each for leaf, each in program.takers.items() if leaf in leaves}
        first = {name: self._planners[name].first() for name in sources}
        whole = {
            name: replace(offset, next=self.offsets[name].next, clock=self.offsets[name].clock)
            for name, offset in first.items()
        }
        planned = PlannedBatch(
            self.committed.batch, clock.now_ms(), whole, {}, {}, self.committed.versions
        )
        graph = replace(self.query.graph, program=replace(program, takers=takers))
        result = QueryJob(graph).run(self._batch_plan(planned))
        self.committed = self._committed(planned, result, self.committed.ends)
        self.offsets = self.committed.offsets
        self._folder.write_commit(self.committed)
        self._folder.prime([])

    # Planning

    def _plan(self, *, flush: bool) -> PlannedBatch | None:
        offsets, moved = {}, False
        for name, start in self.offsets.items():
            planner = self._planners[name]
            with blame("source", name):
                offsets[name] = planner.next(start)
            moved |= offsets[name] is not start
        promises = self._due_promises(offsets, flush=flush)
        if not moved and not (flush and promises):
            return None
        planned = PlannedBatch(
            self.committed.batch + 1,
            clock.now_ms(),
            offsets,
            {spec.name: spec.topic for spec in self._program.sources},
            {name: each.clock for name, each in self.offsets.items()},
            self.committed.versions,
            promises,
        )
        self._folder.write_plan(planned)
        return planned

    def clocks(self) -> dict[str, int | None]:
        """The clock of what each node writes."""
        return dict(self._clocks({name: each.clock for name, each in self.offsets.items()}))

    def _clocks(self, clocks: dict[str, int | None]) -> Iterable[tuple[str, int | None]]:
        for built in self.query.nodes:
            if built.output is not None:
                sources = [self._program.sources[each].name for each in built.clock_sources]
                yield built.name, least_clock([clocks.get(each) for each in sources])

    def _due_promises(self, offsets: dict[str, SourceOffset], *, flush: bool) -> dict[str, int]:
        """What topics are told with this batch of how far the clock is.

        Those that are read elsewhere in the app at once; the others, which nobody may read, every
        second, as each is a record in every partition.
        """
        due: dict[str, int] = {}
        now = clock.monotonic()
        for node, found in self._clocks({name: each.clock for name, each in offsets.items()}):
            before, since = self._promised.get(node, (None, -_PROMISE_EVERY))
            is_due = flush or node in self.query.followed or now - since >= _PROMISE_EVERY
            if found is not None and found != before and is_due:
                due[node] = found
        return due

    # Running

    def _run(self, planned: PlannedBatch) -> None:
        plan = self._batch_plan(planned)
        result = BatchResult()
        if self._needs_spark(plan):
            if self._job is None:
                self._job = QueryJob(self.query.graph)
            result = self._job.run(plan)
            self._drain_to_sinks(planned.batch)
        self._crash(BEFORE_COMMIT)
        appended = self._publish(planned, result)
        self._crash(AFTER_COMMIT)
        self._offer_views(planned.batch, result, appended)
        self.committed = self._committed(planned, result, self._ends(appended))
        self._folder.write_commit(self.committed)
        self.offsets = self.committed.offsets
        if self._job is not None:
            self._job.forget(planned.batch)
        if planned.batch % _CLEAN_EVERY == 0 and self._cleaning.done():
            self._cleaning = self._cleaner.submit(self._clean, self.committed)

    def _batch_plan(self, planned: PlannedBatch) -> BatchPlan:
        ranges, clocks = [], []
        for number, spec in enumerate(self._program.sources):
            offset = planned.offsets.get(spec.name) or self.offsets[spec.name]
            clocks.append((offset.clock, planned.clocks.get(spec.name)))
            for partition, until in offset.next.items():
                progress = offset.progress[partition]
                if until > progress.at:
                    ranges.append(
                        SourceRange(number, offset.topic, partition, until, progress.as_json())
                    )
        tasks: list[list[SourceRange]] = [[] for _ in range(self._program.buckets)]
        loads = [0] * len(tasks)
        for each in sorted(ranges, key=lambda one: one.progress["at"] - one.end):
            lightest = loads.index(min(loads))
            tasks[lightest].append(each)
            loads[lightest] += each.end - each.progress["at"]
        return BatchPlan(planned.batch, planned.planned_ms, tasks, clocks, planned.versions)

    def _needs_spark(self, plan: BatchPlan) -> bool:
        if any(plan.ranges):
            return True
        return any(
            operator.uses_clock and plan.has_moved(operator.sources)
            for operator in self._program.operators.values()
        )

    def _drain_to_sinks(self, batch: int) -> None:
        for name, frame, sink in self.query.sinks:
            sink.write(batch_frame(self._session, frame), batch, node=name)

    def _publish(self, planned: PlannedBatch, result: BatchResult) -> Appended:
        """Returns an entry for each partition that has something new."""
        written = []
        for number, output in enumerate(self._program.outputs):
            promise = planned.promises.get(output.node)
            records = result.records.get(number, {})
            if records or promise is not None:
                written.append(
                    Written(output.node, output.topic, output.partitions, records, promise)
                )
        for built in self.query.nodes:
            if built.name in result.rejected and built.output is not None:
                topic = rejected_topic(built.output.topic)
                self._ensure_topic(topic)
                records = {0: result.rejected[built.name].records}
                written.append(Written(built.name, topic, 1, records))
        found = self._publisher.publish(planned.batch, written)
        now = clock.monotonic()
        self._promised |= {node: (promise, now) for node, promise in planned.promises.items()}
        appended: Appended = {}
        for each in written:
            told = each.records if each.promise is None else range(each.partitions)
            appended[each.topic] = {n: found.get(each.topic, {}).get(n) for n in told}
        return appended

    def _ensure_topic(self, name: str) -> None:
        """Makes a topic for rejected rows, of which most nodes have none."""
        if not self._present:
            self._present = set(self._log.topics())
        if name not in self._present:
            self._log.create(name, retention_ms=-1)
            self._present.add(name)

    def _offer_views(self, batch: int, result: BatchResult, appended: Appended) -> None:
        """Hands the rows of views to those who keep them, who need not read them then."""
        views: dict[str, Published] = {}
        for number, output in enumerate(self._program.outputs):
            if not output.view or output.topic not in appended:
                continue
            if number in result.records and result.rows.get(number) is None:
                return  # too many to be worth it, so all are read
            views[output.node] = Published(result.rows.get(number), appended[output.topic])
        self._offer(batch, views)

    def _ends(self, appended: Appended) -> dict[str, dict[int, int]]:
        """The next offsets of all topics that the query writes."""
        ends = {topic: dict(parts) for topic, parts in self.committed.ends.items()}
        for topic, offsets in appended.items():
            for number, some in offsets.items():
                # What was published before a crash, and on Kafka, the log has to be asked for.
                end = self._log.bounds(topic, number).end if some is None else some.stop
                ends.setdefault(topic, {})[number] = end
        return ends

    def _committed(
        self, planned: PlannedBatch, result: BatchResult, ends: dict[str, dict[int, int]]
    ) -> CommittedBatch:
        before = self.committed
        offsets = {}
        for number, spec in enumerate(self._program.sources):
            offset = planned.offsets.get(spec.name) or self.offsets[spec.name]
            progress = offset.progress | result.progress.get(number, {})
            offsets[spec.name] = replace(offset, progress=progress)
        # Of operators that are not there any more, nothing is known from now on.
        names = {operator.name for operator in self._program.operators.values()}
        versions = {name: [*each] for name, each in before.versions.items() if name in names}
        counts = {
            name: [[*some] for some in each]
            for name, each in before.counts.items()
            if name in names
        }
        for operator, bucket, counted in result.stepped:
            buckets = self._program.buckets
            versions.setdefault(operator, [EMPTY] * buckets)[bucket] = planned.batch
            counts.setdefault(operator, [[0, 0, 0] for _ in range(buckets)])[bucket] = [*counted]
        marks = dict(before.marks)
        for output in self._program.outputs:
            if output.node in planned.promises:
                marks[output.topic] = marks.get(output.topic, 0) + output.partitions
        nodes = {built.name: built.folder.generation for built in self.query.nodes}
        rejected = {name: Counter(each) for name, each in before.rejected.items() if name in nodes}
        for name, found in result.rejected.items():
            rejected.setdefault(name, Counter()).update(found.reasons)
        told = {name: dict(each) for name, each in rejected.items()}
        return CommittedBatch(planned.batch, offsets, versions, ends, marks, counts, nodes, told)

    def _crash(self, point: str) -> None:
        for built in self.query.nodes:
            if built.crash_points and (path := built.crash_points / point).exists():
                path.unlink()
                raise Crash(f"{built.name} was ordered to die at {point}")

    def _clean(self, committed: CommittedBatch) -> None:
        """Removes journals, and versions of state that no batch which is kept begins with."""
        program = self._program
        try:
            settle(program.state)
            for operator in committed.versions:
                keep_from = committed.batch - KEPT_BATCHES
                clean(program.state, operator, program.buckets, keep_from=keep_from)
        except (OSError, PenstockError) as error:  # the query goes on, with more files
            logger.warning("old state of query %s was not removed: %s", self.query.name, error)


class _KeptInMemory:
    """Where sources began to read, and nothing else: offsets have their progress with them."""

    def __init__(self, source: str, begins: dict[str, Any]) -> None:
        """`begins` has the offset that each source began with; who made it writes it down."""
        self._source = source
        self._begins = begins

    def read_first(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._begins.get(self._source)
        return found

    def write_first(self, offset: dict[str, Any]) -> None:
        self._begins[self._source] = offset

    def read(self, partition: int, end: int) -> Progress:
        raise ForeignCheckpoint(
            f"nothing is known of {self._source}/{partition} at offset {end}",
            hint="the query's folder is not whole; start its nodes with --reset",
        )

    def forget_before(self, ends: object) -> None:
        """There is nothing to forget."""
