"""Running a batch of a query: its jobs, which are planned anew from frames that are built once."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.streams.source.progress import Progress
from penstock.streams.spark.blame import blame
from penstock.streams.spark.leaves import run_fresh
from penstock.streams.spark.query.data_errors import reason_of
from penstock.streams.spark.query.graph import QueryGraph
from penstock.streams.spark.query.messages import MESSAGES, Told, read_told
from penstock.streams.spark.query.outputs import last_rows
from penstock.streams.spark.query.plan import BatchPlan
from penstock.streams.spark.query.program import Shipped
from penstock.streams.spark.query.rejections import Rejection, encode_rejections
from penstock.streams.spark.query.segments import Segments
from penstock.streams.spark.query.tasks import (
    Carried,
    FromSpark,
    Place,
    Read,
    Step,
    Whole,
)
from penstock.streams.state.files import Counts

_PAYLOAD = MESSAGES.names.index("_payload")
_SMALL = 2_000  # records; a guess well below where a second core would pay, and not tuned
# Operators and outputs of a small batch: with 22 one task is faster than two, with 63 two are.
WORTH_A_TASK = 24


class Stepped(NamedTuple):
    """A bucket of an operator that has a new version of its state."""

    operator: str
    bucket: int
    counts: Counts


@dataclass
class Rejected:
    """The rows of a node of which a value cannot be computed: how many for each reason, and the
    record batches that say which."""

    reasons: Counter[str] = field(default_factory=Counter)
    records: list[bytes] = field(default_factory=list)


@dataclass
class BatchResult:
    """`records` has the record batches for each output and partition; `rows` the rows that outputs
    of views changed, the last of each key, None where those are too many."""

    progress: dict[int, dict[int, Progress]] = field(default_factory=dict)
    records: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    rows: dict[int, pa.RecordBatch | None] = field(default_factory=dict)
    stepped: list[Stepped] = field(default_factory=list)
    rejected: dict[str, Rejected] = field(default_factory=dict)

    def reject(self, node: str, rows: Sequence[Rejection]) -> None:
        found = self.rejected.setdefault(node, Rejected())
        found.reasons.update(each.reason for each in rows)
        found.records.append(encode_rejections(rows))


class QueryJob:
    """A batch of few rows has no stages where that is possible: on one host, where any worker has
    the state of all buckets, and without anything that Spark has to compute."""

    def __init__(self, graph: QueryGraph) -> None:
        self._session = graph.session
        self._graph = graph
        self._phases = _frames(graph)
        self._apart: dict[int, DataFrame] = {}  # phases whose segments were computed before
        self._before = 0  # records of the last batch
        self._small: JavaObject | None = None
        if graph.program.folder is not None and len(self._phases) == 1:
            # Planned once: without an exchange, whose files would be kept, a job reads all anew.
            self._small = run_fresh(self._session, _without_stages(graph)).executedPlan()
        self._handed = Path(graph.program.handed)

    def run(self, plan: BatchPlan) -> BatchResult:
        """Raises whatever a task raised, as Spark tells it."""
        # What is handed over under this number may be of a run that was killed, even one of an app
        # whose folder was deleted since: a task that hands over nothing would leave it there.
        self.forget(plan.batch)
        plan.announce(self._session.sparkContext)
        told: list[Told] = []
        rejected: list[dict[str, list[Rejection]]] = []  # by segments, by node
        # A batch of no rows that follows a large one may close all its windows.
        small = self._small if max(plan.records, self._before) <= _SMALL else None
        self._before = plan.records
        if small is not None:
            with blame("phase", 0):
                told += _told(small.executeCollect())
        for phase, frame in enumerate(self._phases if small is None else []):
            with blame("phase", phase):
                try:
                    rows = self._collected(frame)
                except Exception as error:
                    if phase == 0 or reason_of(error) is None:
                        raise
                    rejected.append(self._computed_apart(phase, plan.batch, error))
                    rows = self._collected(self._apart[phase])
            told += _told(rows)
        told.sort(key=lambda each: each.order)
        result = _result(told)
        for node, rows_of_node in (pair for each in rejected for pair in each.items()):
            result.reject(node, rows_of_node)
        return result

    def _collected(self, frame: DataFrame) -> Any:
        return run_fresh(self._session, frame).executedPlan().executeCollect()

    def _computed_apart(
        self, phase: int, batch: int, error: Exception
    ) -> dict[str, list[Rejection]]:
        """Computes the segments of a phase without the rows that make them fail, which it returns
        by node; the phase goes on from what they leave."""
        segments = Segments(self._graph, phase)
        found = segments.compute(batch, error)
        if phase not in self._apart:
            self._apart[phase] = _frames(self._graph, {phase: segments})[phase]
        return found

    def forget(self, batch: int) -> None:
        """Removes what a batch has left for Spark."""
        if len(self._phases) > 1:
            shutil.rmtree(self._handed / str(batch), ignore_errors=True)


def _told(rows: Any) -> Iterator[Told]:
    """What the rows that a job gave tell the driver."""
    return chain.from_iterable(read_told(bytes(row.getBinary(_PAYLOAD))) for row in rows)


def _result(told: list[Told]) -> BatchResult:
    result = BatchResult()
    shown: dict[int, list[bytes]] = {}
    for _, facts, content in told:
        if "output" in facts:
            parts = result.records.setdefault(facts["output"], {})
            at = 0
            for partition, size in facts["parts"]:
                parts.setdefault(partition, []).append(content[at : at + size])
                at += size
        elif "view" in facts:
            shown.setdefault(facts["view"], []).append(content)
        elif "rejected" in facts:
            rejected = result.rejected.setdefault(facts["rejected"], Rejected())
            rejected.reasons.update(facts["reasons"])
            rejected.records.append(content)
        elif "source" in facts:
            progress = Progress.from_json(facts["progress"])
            result.progress.setdefault(facts["source"], {})[facts["partition"]] = progress
        else:
            counts = Counts(*facts["counts"])
            result.stepped.append(Stepped(facts["operator"], facts["bucket"], counts))
    result.rows = {number: _joined(contents) for number, contents in shown.items()}
    return result


def _joined(contents: list[bytes]) -> pa.RecordBatch | None:
    if not all(contents):
        return None
    batches = [batch for each in contents for batch in pa.ipc.open_stream(each)]
    return last_rows(pa.concat_batches(batches))


def _frames(graph: QueryGraph, apart: Mapping[int, Segments] | None = None) -> list[DataFrame]:
    """One for each phase, with the segments of those that are given as they have left their
    rows."""
    program = graph.program
    shipped = Shipped(program)
    schema = from_arrow_schema(MESSAGES)
    frames, stage = [], 0
    for phase, levels in enumerate(program.levels):
        segments = (apart or {}).get(phase)
        frame = _begun(graph, Place(shipped, phase, stage, last=not levels), segments)
        stage += 1
        for number, level in enumerate(levels):
            moved = frame.repartitionById(program.buckets, col("_bucket"))
            place = Place(shipped, phase, stage, last=number == len(levels) - 1)
            frame = moved.mapInArrow(Step(place, level), schema)
            stage += 1
        frames.append(frame)
    return frames


def _without_stages(graph: QueryGraph) -> DataFrame:
    """One task, or one for each core where there are enough operators and outputs for that."""
    program, session = graph.program, graph.session
    (levels,) = program.levels
    worth = (len(program.operators) + len(program.outputs)) // WORTH_A_TASK
    most = min(session.sparkContext.defaultParallelism, worth)
    parts = [Shipped(each) for each in program.split(max(1, most))]
    place = Place(parts[0], 0, len(levels) + 1, last=True)
    tasks = session.range(0, len(parts), 1, len(parts))
    return tasks.mapInArrow(Whole(place, parts), from_arrow_schema(MESSAGES))


def _begun(graph: QueryGraph, place: Place, segments: Segments | None) -> DataFrame:
    """The first stage of a job: what is read, or what Spark made of what was handed to it."""
    schema, buckets = from_arrow_schema(MESSAGES), graph.program.buckets
    tasks = graph.session.range(0, buckets, 1, buckets)
    if place.phase == 0:
        return tasks.mapInArrow(Read(place), schema)
    frames = [tasks.mapInArrow(Carried(place), schema)]
    for leaf in graph.leaves:
        if leaf.frame is not None and leaf.phase == place.phase:
            rows = leaf.frame if segments is None else segments.frame(leaf)
            frames.append(rows.mapInArrow(FromSpark(place, leaf.number), schema))
    return reduce(DataFrame.union, frames)
