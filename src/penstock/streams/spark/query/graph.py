"""The graph of a query, while its nodes are built: leaves, and who takes their rows.

Nodes build DataFrames over leaves; what lies between two operators is translated into a selection
that workers evaluate, or else is a segment, which Spark computes. Equal operators over equal rows
are one operator.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from penstock.streams.algebra.kernel import Packing, Stepping
from penstock.streams.algebra.rows.expressions.language import BATCH_TIME
from penstock.streams.algebra.rows.selection import ALL, COLUMN, Expression, Selection
from penstock.streams.algebra.spreading import Spread
from penstock.streams.source.spec import SourceSpec
from penstock.streams.spark.leaves import (
    check_stateless,
    has_functions,
    leaf_frame,
    leaf_rows,
    leaves_in,
    with_rows,
)
from penstock.streams.spark.origin import origin_of
from penstock.streams.spark.packing import Packer
from penstock.streams.spark.query.handed import PLACE, Handed
from penstock.streams.spark.query.identity import described, digest, operator_spec, plan_text
from penstock.streams.spark.query.outputs import Output
from penstock.streams.spark.query.program import (
    Operator,
    Program,
    Taker,
    ToOperator,
    ToSpark,
    ToTopic,
)
from penstock.streams.spark.translation import translated


class Input(NamedTuple):
    """What an operator takes: the rows of a DataFrame, packed and spread over its buckets.
    `opening` are packed before all others, once."""

    frame: DataFrame
    packing: Packing
    spread: Spread = Spread.BY_KEY
    opening: pa.RecordBatch | None = None


@dataclass
class Leaf:
    """`identity` says what its rows are, whoever asks: two leaves with the same one are one.
    Phases are jobs, one after the other, and levels the stages of a job."""

    number: int
    identity: str
    schema: pa.Schema
    phase: int = 0
    level: int = 0
    sources: frozenset[int] = frozenset()
    keys: tuple[str, ...] = ()  # columns whose equal values are in one bucket
    frame: DataFrame | None = None  # of a segment
    made_of: "list[Fed] | None" = None  # of what a node gives: where its rows are made


class Fed(NamedTuple):
    """Rows of a leaf, as they are or selected; `told` says which rows these are."""

    leaf: Leaf
    selection: Selection | None
    told: tuple[str, Selection | None]


class Made(NamedTuple):
    """An operator: its output, the name of its state, and what it reads, in words."""

    frame: DataFrame
    name: str
    inputs: list[str]


@dataclass
class QueryGraph:
    """`program` is filled while nodes are built."""

    session: SparkSession
    program: Program
    leaves: list[Leaf] = field(default_factory=list)
    users: dict[int, set[str]] = field(default_factory=dict)  # the nodes that need a leaf
    building: str = ""  # the node whose function is being called
    _frames: dict[tuple[int, str], JavaObject] = field(default_factory=dict)  # by leaf and schema
    _rows: dict[tuple[int, str], JavaObject] = field(default_factory=dict)  # likewise
    _feeds: "dict[DataFrame, list[Fed]]" = field(default_factory=dict)

    def source(self, spec: SourceSpec) -> DataFrame:
        """The rows of a source, which is read once however many ask for it."""
        ordered = dict.fromkeys((*spec.metadata, "partition", "offset"))
        reading = spec if spec.rejected else replace(spec, metadata=tuple(ordered))
        program = self.program
        identity = f"source {spec.name}"
        found = next((each for each in self.leaves if each.identity == identity), None)
        if found is None:
            number = len(program.sources)
            sources = frozenset([number]) if spec.rule is not None else frozenset[int]()
            found = self._leaf(identity, spec.row_schema, sources=sources)
            program.sources.append(reading)
            program.source_leaves.append(found.number)
        return self._frame(found)

    def _leaf(self, identity: str, schema: pa.Schema, **more: Any) -> Leaf:
        leaf = Leaf(len(self.leaves), identity, schema, **more)
        self.leaves.append(leaf)
        self._use(leaf)
        return leaf

    def _use(self, leaf: Leaf) -> None:
        self.users.setdefault(leaf.number, set()).add(self.building)

    def _frame(self, leaf: Leaf, schema: StructType | None = None) -> DataFrame:
        """Made once; each reader may note its own facts on it."""
        schema = schema or from_arrow_schema(leaf.schema)
        identity = leaf.number, schema.json()
        if identity not in self._frames:
            self._frames[identity] = leaf_frame(self.session, leaf.number, schema)._jdf
        return DataFrame(self._frames[identity], self.session)

    def _handed(self, number: int, schema: StructType) -> JavaObject:
        """The rows of a leaf as they are handed over; the same object whoever asks, by which Spark
        knows that two DataFrames are equal."""
        identity = number, schema.json()
        if identity not in self._rows:
            buckets = self.program.buckets
            read = Handed(self.program.handed, number, tuple(schema.names), readers=buckets)
            self._rows[identity] = leaf_rows(self.session, schema, read, buckets)
        return self._rows[identity]

    # Operators

    def operator(
        self, kernel: Stepping, inputs: Sequence[Input], *, by_wall_clock: bool, cohort: str
    ) -> Made:
        """What comes of these rows. `cohort` sets operators apart that began at another time, and
        whose state is therefore another one."""
        feeds = [(each, fed) for each in inputs for fed in self.fed_by(each.frame)]
        reads = [described(*fed.told, each.packing.needed, str(each.spread)) for each, fed in feeds]
        spec = operator_spec(kernel)
        about = json.dumps([cohort, spec, reads, by_wall_clock], sort_keys=True)
        name = f"{digest(about)}-{spec['kernel']}"
        identity = f"operator {name}"
        same = [each for each in self.leaves if each.identity == identity]
        if same and all(each.packing.portable for each in inputs):
            self._use(same[0])
            return Made(self._frame(same[0]), name, reads)
        if same:  # of functions that nobody can compare
            name = f"{name}-{len(same)}"
        leaf = self._below([fed.leaf for _, fed in feeds], identity, kernel.output)
        if all(each.spread is Spread.BY_KEY for each in inputs) and len(inputs) == 1:
            leaf.keys = kernel.keys
        sources = None if by_wall_clock else tuple(sorted(leaf.sources))
        self.program.operators[leaf.number] = Operator(leaf.number, name, kernel, sources)
        for each, fed in feeds:
            packer = self._packer(leaf, each.packing, each.spread)
            selection = _shaped(fed.selection, each.frame, each.packing)
            self._take(fed.leaf, ToOperator(leaf.number, packer, selection, each.opening))
        return Made(self._frame(leaf), name, reads)

    def _packer(self, leaf: Leaf, packing: Packing, spread: Spread) -> Packer:
        folder = self.program.folder and f"{self.program.folder}/{leaf.number}"
        return Packer(packing, self.program.buckets, folder, spread)

    def _below(self, above: Sequence[Leaf], identity: str, schema: pa.Schema) -> Leaf:
        """A leaf of the stage after those that it takes rows of."""
        phase = max(each.phase for each in above)
        level = 1 + max((each.level for each in above if each.phase == phase), default=0)
        sources = _sources_of(above)
        return self._leaf(identity, schema, phase=phase, level=level, sources=sources)

    # What lies between

    def fed_by(self, frame: DataFrame) -> list[Fed]:
        """Where the rows of a DataFrame are made."""
        if frame not in self._feeds:
            self._feeds[frame] = self._fed_by(frame)
        return self._feeds[frame]

    def _fed_by(self, frame: DataFrame) -> list[Fed]:
        if origin_of(frame).source is not None:  # nothing but a source, with the place of each row
            (number,) = leaves_in(frame)
            return self._made(self.leaves[number], None)
        found = translated(frame)
        if found is None:
            return self._made(self._segment(frame), None)
        return [
            fed for number, selection in found for fed in self._made(self.leaves[number], selection)
        ]

    def _made(self, leaf: Leaf, selection: Selection | None) -> list[Fed]:
        told = leaf.identity, selection
        if leaf.made_of is None:
            return [Fed(leaf, selection, told)]
        return [
            Fed(fed.leaf, _one_after_the_other(fed.selection, selection), told)
            for fed in leaf.made_of
        ]

    def node(self, identity: str, frame: DataFrame) -> Callable[[], DataFrame]:
        """What a node gives, for those who read it, if somebody does: whatever it is made of, its
        rows are known by this identity."""
        return self._renamed(f"node {identity}", self.fed_by(frame), frame.schema)

    def _renamed(
        self, identity: str, made_of: list[Fed], schema: StructType
    ) -> Callable[[], DataFrame]:
        """A leaf of rows that are made elsewhere."""
        leaf = self._leaf(identity, _arrow(schema), made_of=made_of)
        leaf.phase = max(fed.leaf.phase for fed in made_of)
        leaf.sources = _sources_of(fed.leaf for fed in made_of)
        return partial(self._frame, leaf, schema)

    def _segment(self, frame: DataFrame) -> Leaf:
        check_stateless(frame)
        frame = with_rows(frame, self._handed)
        above = [self.leaves[number] for number in leaves_in(frame)]
        # The text of a plan has the name of a function, not what the function does: a segment with
        # functions belongs to its node alone, in whichever query that runs.
        whose = self.building if has_functions(frame) else ""
        about = json.dumps([plan_text(frame), [each.identity for each in above], whose])
        identity = f"segment {digest(about)}"
        alike = [each for each in self.leaves if each.identity.startswith(identity)]
        for found in alike:
            if found.frame is not None and found.frame.sameSemantics(frame):
                self._use(found)
                return found
        if alike:
            identity = f"{identity}-{len(alike)}"
        phase = 1 + max(each.phase for each in above)
        sources = _sources_of(above)
        leaf = self._leaf(identity, _arrow(frame.schema), phase=phase, sources=sources)
        leaf.frame = frame
        for each in above:
            self.hand_over(each, each.schema)
        return leaf

    def stamped(self, frame: DataFrame, column: str) -> DataFrame:
        """The same rows, with the time at which their batch was planned, again when it is run
        again."""
        step: dict[str, str | Expression] = {name: name for name in frame.columns}
        step[column] = [BATCH_TIME]
        then = Selection((step,))
        made_of = [
            Fed(fed.leaf, _one_after_the_other(fed.selection, then), fed.told)
            for fed in self.fed_by(frame)
        ]
        told = json.dumps([described(*fed.told, None) for fed in made_of])
        schema = StructType([*frame.schema.fields, StructField(column, TimestampType(), False)])
        return self._renamed(f"stamped {digest(told)}", made_of, schema)()

    def hand_over(self, leaf: Leaf, schema: pa.Schema) -> None:
        """Has the rows of a leaf left for Spark."""
        made = self._made(leaf, None)
        if any(
            isinstance(each, ToSpark) and each.leaf == leaf.number
            for each in self.program.takers.get(made[0].leaf.number, ())
        ):
            return
        for fed in made:
            selection = fed.selection or ALL
            wanted = schema
            if fed.leaf.number in self.program.source_leaves:
                # For the case that a row turns out to be one that Spark cannot compute.
                place = [each for name, each in PLACE.items() if name not in schema.names]
                if set(PLACE) <= set(self._given_by(fed.leaf)):
                    selection = selection.keeping([each.name for each in place])
                    wanted = pa.schema([*schema, *place])
            self._take(fed.leaf, ToSpark(leaf.number, selection.shaped(wanted)))

    def _given_by(self, source: Leaf) -> list[str]:
        number = self.program.source_leaves.index(source.number)
        names: list[str] = self.program.sources[number].row_schema.names
        return names

    def hand_over_frame(self, frame: DataFrame) -> DataFrame:
        """Has all leaves of a DataFrame left for Spark, which computes it when it is asked to."""
        for number in leaves_in(frame):
            leaf = self.leaves[number]
            self.hand_over(leaf, leaf.schema)
        return with_rows(frame, self._handed)

    def _take(self, leaf: Leaf, taker: Taker) -> None:
        self.program.takers.setdefault(leaf.number, []).append(taker)

    # Outputs

    def output(self, frame: DataFrame, output: Output, *, is_table: bool) -> frozenset[int]:
        """Writes the rows to a topic, the changes of a table with all of one key in one task.
        Returns the sources that its clock goes by."""
        number = len(self.program.outputs)
        self.program.outputs.append(output)
        schema = _arrow(frame.schema)
        feeds = self.fed_by(frame)
        sources = _sources_of(fed.leaf for fed in feeds)
        if is_table and not (len(feeds) == 1 and _is_together(feeds[0], output.key)):
            leaf = self._below([fed.leaf for fed in feeds], f"output {number}", schema)
            self.program.operators[leaf.number] = Operator(leaf.number, "", None, ())
            packing = ByKey(output.key, schema)
            for fed in feeds:
                packer = self._packer(leaf, packing, Spread.BY_KEY)
                selection = _shaped(fed.selection, frame, packing)
                self._take(fed.leaf, ToOperator(leaf.number, packer, selection))
            feeds = self._made(leaf, None)
        for fed in feeds:
            selection = fed.selection
            self._take(
                fed.leaf, ToTopic(number, None if selection is None else selection.shaped(schema))
            )
        return sources

    def finish(self) -> None:
        """Puts the operators into the stages of their jobs, without those that nobody reads, as the
        table of which only the upserts are asked for."""
        self._prune()
        phases = 1 + max((each.phase for each in self.leaves), default=0)
        levels: list[list[list[int]]] = [[] for _ in range(phases)]
        for leaf in self.leaves:
            if leaf.number in self.program.operators:
                stages = levels[leaf.phase]
                while len(stages) < leaf.level:
                    stages.append([])
                stages[leaf.level - 1].append(leaf.number)
        self.program.levels = levels
        self.program.nodes = {leaf: min(nodes) for leaf, nodes in self.users.items()}

    def _prune(self) -> None:
        takers, operators = self.program.takers, self.program.operators
        while unread := [leaf for leaf in operators if not takers.get(leaf)]:
            for leaf in unread:
                del operators[leaf]
            for of, each in takers.items():
                takers[of] = [
                    one for one in each if not (isinstance(one, ToOperator) and one.leaf in unread)
                ]


@dataclass(frozen=True)
class ByKey:
    """Rows as they are, on their way to others of the same key."""

    keys: tuple[str, ...]
    packed: pa.Schema
    portable = True

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(self.packed.names)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    def spec(self) -> dict[str, Any]:
        return {"kernel": "by_key", "keys": list(self.keys)}


def _is_together(fed: Fed, key: Sequence[str]) -> bool:
    """Whether rows of one key are in one bucket already."""
    if not fed.leaf.keys:
        return False
    if fed.selection is None:
        return set(fed.leaf.keys) <= set(key)
    names: Mapping[str, str] = {name: name for name in fed.leaf.keys}  # new ones by old ones
    for step in fed.selection.steps:
        if isinstance(step, Mapping):
            plain = {_plain(old): new for new, old in step.items()}
            names = {old: plain.get(new, "") for old, new in names.items()}
    return set(names.values()) <= set(key)


def _plain(column: str | Expression) -> str:
    """The column that this is, "" if it is computed."""
    if isinstance(column, str):
        return column
    return str(column[1]) if column[0] == COLUMN else ""


def _shaped(selection: Selection | None, frame: DataFrame, packing: Packing) -> Selection | None:
    """With the columns that are needed, in the types of the frame."""
    if selection is None:
        return None
    wanted = [each for each in _arrow(frame.schema) if each.name in packing.needed]
    return selection.shaped(pa.schema(wanted))


def _one_after_the_other(first: Selection | None, then: Selection | None) -> Selection | None:
    if first is None or then is None:
        return first or then
    return replace(then, steps=(*first.steps, *then.steps))


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def _sources_of(leaves: Iterable[Leaf]) -> frozenset[int]:
    return frozenset[int]().union(*(each.sources for each in leaves))
