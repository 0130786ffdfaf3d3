"""The stages of a batch, as functions that Spark runs over Arrow: read, step, step, ...

Each takes whatever it is sent and sends on; the last one of a job tells the driver.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa
from pyspark import TaskContext

from penstock.streams.algebra.changes import retractions_in
from penstock.streams.algebra.rows.expressions.language import batch_time
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader, in_larger_batches
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import SourceTopic, open_topic
from penstock.streams.spark.blame import blame
from penstock.streams.spark.crash import IN_WORKER, crash_at
from penstock.streams.spark.packing import forget_files
from penstock.streams.spark.place import warm_folder
from penstock.streams.spark.query.handed import Handed, write_handed
from penstock.streams.spark.query.messages import Message, Outbox, read_messages, rows_of
from penstock.streams.spark.query.plan import BatchPlan
from penstock.streams.spark.query.program import (
    Delivery,
    Operator,
    Program,
    Shipped,
)
from penstock.streams.state import BucketState, Journal


class Place(NamedTuple):
    """Where in a batch a task belongs: phases are jobs, and stages are counted over all of them.
    `last` is set for the last stage of a job."""

    shipped: Shipped
    phase: int
    stage: int
    last: bool


class _Here(NamedTuple):
    """Where a task, or one stage of a small batch, is at work."""

    program: Program
    plan: BatchPlan
    number: int  # of the task, which is its bucket where operators step
    delivery: Delivery
    outbox: Outbox
    journal: Journal | None

    @classmethod
    def of(
        cls, program: Program, plan: BatchPlan, stage: int, number: int, journal: Journal | None
    ) -> Self:
        outbox = Outbox(stage, number, program.buckets, program.folder)
        return cls(program, plan, number, Delivery(program, outbox, number), outbox, journal)

    def inside(self, stage: int, number: int) -> Self:
        """One of the stages of this task, for which it is a task of its own."""
        outbox = Outbox(stage, number, self.program.buckets, self.program.folder, stays=True)
        delivery = Delivery(self.program, outbox, number)
        return self._replace(number=number, delivery=delivery, outbox=outbox)


class _Task(ABC):
    def __init__(self, place: Place) -> None:
        self._place = place

    def _shipped(self, task: int) -> Shipped:
        return self._place.shipped

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        program = self._shipped(context.partitionId()).program()
        plan = BatchPlan.of_task()
        batch_time.set(plan.planned_ms * 1_000)
        # On several hosts, one that is lost for a while may come back with a journal of its own.
        journal = None if program.folder is None else Journal.at(program.state)
        stage, number = self._place.stage, context.partitionId()
        here = _Here.of(program, plan, stage, number, journal)
        try:
            self._work(here, batches)
            here.delivery.finish()
        finally:  # even what is given up must not be torn
            if journal is not None:
                journal.write()
        if not self._place.last:
            yield here.outbox.batch()
            return
        if (left := here.outbox.left_over()).num_rows:
            write_handed(program.handed, _carried(self._place.phase), here.number, [left])
        yield here.outbox.last_word()

    @abstractmethod
    def _work(self, here: _Here, batches: Iterator[pa.RecordBatch]) -> None: ...


class Read(_Task):
    """Reads what the plan says, once for all who want it."""

    def _work(self, here: _Here, batches: Iterator[pa.RecordBatch]) -> None:
        for _ in batches:
            pass
        _read(here)


class FromSpark(_Task):
    """Takes up the rows of a segment, which Spark has computed."""

    def __init__(self, place: Place, leaf: int) -> None:
        super().__init__(place)
        self._leaf = leaf

    def _work(self, here: _Here, batches: Iterator[pa.RecordBatch]) -> None:
        for rows in batches:
            here.delivery.give(self._leaf, rows)


class Carried(_Task):
    """Takes up what the job before had for operators of this one or a later one."""

    def _work(self, here: _Here, batches: Iterator[pa.RecordBatch]) -> None:
        before = Handed(
            here.program.handed, _carried(self._place.phase - 1), readers=here.program.buckets
        )
        for message in read_messages(before(batches)):
            here.outbox.pass_on(message)


def _carried(phase: int) -> str:
    """What the messages that a job leaves are called, among the leaves that are handed over."""
    return f"after-{phase}"


class Step(_Task):
    """Steps all operators of a level in one bucket, and passes on what is for later ones."""

    def __init__(self, place: Place, level: list[int]) -> None:
        super().__init__(place)
        self._level = level

    def _work(self, here: _Here, batches: Iterator[pa.RecordBatch]) -> None:
        _step_level(here, self._level, read_messages(batches))


class Whole(_Task):
    """All stages of a small batch in one task, with the same result: what the stages of a job take
    to follow each other is longer than the work in them. Parts of a program that need nothing of
    each other are tasks side by side, of which each reads what there is."""

    def __init__(self, place: Place, parts: list[Shipped]) -> None:
        super().__init__(place)
        self._parts = parts

    def _shipped(self, task: int) -> Shipped:
        return self._parts[task]

    def _work(self, here: _Here, batches: Iterator[pa.RecordBatch]) -> None:
        for _ in batches:
            pass
        program = here.program
        sent: list[Message] = []
        for number in range(program.buckets):
            inner = here.inside(0, number)
            _read(inner, tells=here.number == 0)
            inner.delivery.finish()
            sent += inner.outbox.messages
        (levels,) = program.levels
        for stage, level in enumerate(levels, start=1):
            passed: list[Message] = []
            for bucket in range(program.buckets):
                mine = [each for each in sent if each.bucket == bucket]
                inner = here.inside(stage, bucket)
                _step_level(inner, level, sorted(mine, key=attrgetter("order")))
                inner.delivery.finish()
                passed += inner.outbox.messages
            sent = passed
        for message in sent:
            here.outbox.pass_on(message)


def _read(here: _Here, *, tells: bool = True) -> None:
    """One task `tells` the driver what was read."""
    program, plan = here.program, here.plan
    for folder in Path(program.crash_points).iterdir() if program.crash_points and tells else ():
        crash_at(folder, IN_WORKER)
    if here.number == 0:
        here.delivery.open(plan.versions.keys())
    for wanted in plan.ranges[here.number]:
        if not tells and not program.takers.get(program.source_leaves[wanted.source]):
            continue
        spec = program.sources[wanted.source]
        part = wanted.range(plan.planned_ms)
        for rows in _rows(spec, wanted.topic, part):
            here.delivery.give(program.source_leaves[wanted.source], rows)
        if tells:
            facts = {"source": wanted.source, "partition": wanted.partition}
            here.outbox.tell({**facts, "progress": part.progress.as_json()})


def _rows(spec: SourceSpec, topic: str, part: Range) -> Iterator[pa.RecordBatch]:
    """Only what is raised in here is about the source, and not what its readers do with it."""
    with blame("source", spec.name):
        yield from in_larger_batches(
            RowReader(spec).read(_opened(spec.log, spec.topic, topic), part)
        )


def _step_level(here: _Here, level: list[int], messages: Iterable[Message]) -> None:
    inbox: dict[int, list[pa.RecordBatch]] = {leaf: [] for leaf in level}
    for message in messages:
        if message.target in inbox:
            inbox[message.target].extend(rows_of(message))
        else:
            here.outbox.pass_on(message)
    for leaf, packed in inbox.items():
        operator = here.program.operators[leaf]
        if operator.kernel is None:
            for rows in packed:
                here.delivery.give(leaf, rows)
        elif packed or (operator.uses_clock and here.plan.has_moved(operator.sources)):
            with blame("leaf", leaf):
                _step(here, operator, packed)


def _step(here: _Here, operator: Operator, packed: list[pa.RecordBatch]) -> None:
    program, plan, bucket = here.program, here.plan, here.number
    kernel = operator.kernel
    assert kernel is not None
    clock = plan.clock(operator.sources)
    with BucketState.open(
        program.state,
        warm_folder(program.state),
        operator=operator.name,
        bucket=bucket,
        buckets=program.buckets,
        schema=kernel.state,
        version=plan.version(operator.name, bucket),
        journal=here.journal,
    ) as state:
        for changed in kernel.step(state, packed, clock):
            if kernel.is_final:
                state.count(corrected=retractions_in(changed))
            here.delivery.give(operator.leaf, changed)
        # Without anything that falls due, the clock is no part of the state.
        state.commit(plan.batch, clock if operator.uses_clock else None)
        facts = {"operator": operator.name, "bucket": bucket, "counts": state.counts}
    here.outbox.tell(facts)
    if program.folder is not None:
        forget_files(f"{program.folder}/{operator.leaf}", bucket, str(plan.batch))


@lru_cache(maxsize=256)
def _opened(log: str, topic: str, identity: str) -> SourceTopic:
    """Kept by the workers between tasks, unless the topic is another one of the same name."""
    return open_topic(log, topic, identity)
