"""Stateful operators on Spark: rows are packed, go to their buckets, and meet their state there.

To Spark the query has no state: every bucket takes a step in every batch, with rows or without,
reads the clock of the batch itself, and keeps its state under the batch's number.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.streams.algebra.changes import retractions_in
from penstock.streams.algebra.kernel import END, Kernel, Stepping
from penstock.streams.source.offsets import clock_of_batch, has_idle_source, time_of_batch
from penstock.streams.source.spec import PACKED
from penstock.streams.spark.feeds import StepFeed, fed_by, with_feed
from penstock.streams.spark.origin import Origin, origin_of, with_origin
from penstock.streams.spark.packing import Packer, batch_id, forget_files, unpack
from penstock.streams.spark.place import QueryPlace, place_for, warm_folder
from penstock.streams.spark.query.graph import Input
from penstock.streams.state import EMPTY, BucketState, open_for


def run_kernel(
    df: DataFrame,
    kernel: Kernel,
    *,
    opening: pa.RecordBatch | None = None,
    checkpoint: str | None = None,
    by_wall_clock: bool = False,
) -> DataFrame:
    """The kernel's output over these rows: a table of changes, keyed as the kernel is. `opening`
    are rows that come before all others."""
    given = Input(df, kernel, opening=opening)
    changes = run_step(kernel, [given], checkpoint=checkpoint, by_wall_clock=by_wall_clock)
    return with_origin(changes, Origin(keys=kernel.keys))


def run_step(
    kernel: Stepping,
    inputs: Sequence[Input],
    *,
    checkpoint: str | None = None,
    by_wall_clock: bool = False,
) -> DataFrame:
    """What comes of the rows of all inputs, which meet in the buckets that they are spread over."""
    session = inputs[0].frame.sparkSession
    buckets = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    place, operator = None, ""
    if inputs[0].frame.isStreaming:
        one_host = (session.conf.get("spark.master") or "").startswith("local")
        place = place_for(checkpoint, buckets, one_host)
        if place.graph is not None:
            return _in_graph(place, kernel, inputs, by_wall_clock=by_wall_clock)
        buckets = place.buckets
        operator = place.add_operator(kernel)
    passed = _passed(place, operator)
    packed = [_packed(each, buckets, passed) for each in inputs]
    moved = reduce(DataFrame.union, packed).repartitionById(buckets, col("_bucket"))
    clock = time_of_batch if by_wall_clock else clock_of_batch
    step = Step(kernel, place, operator, passed, clock)
    rows = moved.mapInArrow(step, from_arrow_schema(kernel.output))
    return with_feed(rows, StepFeed(moved, step))


def _in_graph(
    place: QueryPlace, kernel: Stepping, inputs: Sequence[Input], *, by_wall_clock: bool
) -> DataFrame:
    """As an operator of the query that the node is part of."""
    assert place.graph is not None
    made = place.graph.operator(kernel, inputs, by_wall_clock=by_wall_clock, cohort=place.cohort)
    place.add_operator(kernel, state=made.name, inputs=made.inputs)
    return made.frame


def _packed(given: Input, buckets: int, folder: str | None) -> DataFrame:
    df, packing, spread, opening = given
    if opening is not None:
        df = df.mapInArrow(_Opened(opening), from_arrow_schema(opening.schema))
    fed = fed_by(df)
    if fed is not None and (packing.portable or not fed.feed.portable_only):
        selection = fed.selection
        if selection is not None:
            schema = to_arrow_schema(df.schema, timezone="UTC")
            wanted = [each for each in schema if each.name in packing.needed]
            selection = selection.shaped(pa.schema(wanted))
        return fed.feed.packed(Packer(packing, buckets, folder, spread, selection))
    ordered = origin_of(df).with_order()
    rows = df if ordered is None else ordered
    chosen = rows.select([name for name in packing.needed if name in rows.columns])
    return chosen.mapInArrow(Packer(packing, buckets, folder, spread), from_arrow_schema(PACKED))


def _passed(place: QueryPlace | None, operator: str) -> str | None:
    if place is None or not place.one_host:
        return None
    return str(warm_folder(place.checkpoint) / "passed" / operator)


class Step:
    """Runs the kernel on one bucket of a batch; travels to the workers."""

    def __init__(
        self,
        kernel: Stepping,
        place: QueryPlace | None,
        operator: str,
        passed: str | None,
        clock: Callable[[str, int], int | None],
    ) -> None:
        self._kernel = kernel
        self._checkpoint = place.checkpoint if place else None
        self._state = place.state if place else ""
        self._buckets = place.buckets if place else 1
        self._operator = operator
        self._passed = passed
        self._clock = clock

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._checkpoint is None:
            yield from self._at_once(batches)
            return
        batch = int(batch_id())
        clock = self._clock(self._checkpoint, batch)
        for bucket, packed in sorted(unpack(batches).items()):
            if self._passed:
                forget_files(self._passed, bucket, str(batch))
            with open_for(
                batch,
                self._state,
                warm_folder(self._checkpoint),
                operator=self._operator,
                bucket=bucket,
                buckets=self._buckets,
                may_skip=partial(has_idle_source, self._checkpoint),
                schema=self._kernel.state,
            ) as state:
                for changed in self._kernel.step(state, packed, clock):
                    if self._kernel.is_final:
                        state.count(corrected=retractions_in(changed))
                    yield changed
                state.commit(batch, clock)

    def _at_once(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows in one step on a state that is thrown away."""
        with (
            tempfile.TemporaryDirectory(prefix="penstock-") as folder,
            BucketState.open(
                folder,
                folder,
                operator="batch",
                bucket=0,
                buckets=1,
                schema=self._kernel.state,
                version=EMPTY,
            ) as state,
        ):
            for packed in unpack(batches).values():
                yield from self._kernel.step(state, packed, END)


class _Opened:
    """All rows, and before them those that come first, which nothing counts when they come again;
    travels to the workers."""

    def __init__(self, opening: pa.RecordBatch) -> None:
        self._opening = opening

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield self._opening
        for rows in batches:
            columns = zip(rows.columns, self._opening.schema, strict=True)
            arrays = [column.cast(each.type) for column, each in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._opening.schema)
