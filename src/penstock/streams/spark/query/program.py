"""What the tasks of a query do: who takes the rows of which leaf, and which operators step when.

A leaf is where rows are made: a source, an operator, or a segment, which is what Spark itself
computes between them. A program travels to the workers once, and is kept there between tasks.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
from pyspark.cloudpickle import dumps
from pyspark.serializers import CloudPickleSerializer

from penstock.streams.algebra.kernel import Stepping
from penstock.streams.algebra.rows.selection import Selection
from penstock.streams.source.spec import SourceSpec
from penstock.streams.spark.blame import blame
from penstock.streams.spark.packing import Packer, batch_id, packed
from penstock.streams.spark.query.handed import HandedRows, write_handed_rows
from penstock.streams.spark.query.messages import Outbox
from penstock.streams.spark.query.outputs import Output, TooLarge, encode_rows
from penstock.streams.spark.query.rejections import (
    Maker,
    Reason,
    Rejection,
    encode_rejections,
    rejection,
)


@dataclass(frozen=True)
class Operator:
    """`name` is what its state is called; without a kernel it only brings the rows of one key
    together. `sources` are those whose clock it goes by; by the wall clock if there is None."""

    leaf: int
    name: str
    kernel: Stepping | None
    sources: tuple[int, ...] | None

    @property
    def uses_clock(self) -> bool:
        """Whether it emits or evicts anything when its clock moves."""
        return self.kernel is not None and self.kernel.state.due is not None


class ToOperator(NamedTuple):
    """Rows of a leaf that are selected and packed for an operator. `opening` are rows that come
    before all others, once."""

    leaf: int
    packer: Packer
    selection: Selection | None = None
    opening: pa.RecordBatch | None = None


class ToTopic(NamedTuple):
    """Rows of a leaf that are written to a topic."""

    output: int
    selection: Selection | None


class ToSpark(NamedTuple):
    """Rows of a leaf that Spark goes on with, as those of the leaf `leaf`."""

    leaf: int
    selection: Selection


Taker = ToOperator | ToTopic | ToSpark


@dataclass
class Program:
    """`levels` has the operators of each stage of each phase, by their leaves. `state` is the
    address of what operators keep, `folder` where large payloads are written on a single host, and
    `handed` what Spark goes on with."""

    buckets: int
    state: str
    handed: str
    folder: str | None
    crash_points: str = ""
    sources: list[SourceSpec] = field(default_factory=list)
    source_leaves: list[int] = field(default_factory=list)
    operators: dict[int, Operator] = field(default_factory=dict)
    takers: dict[int, list[Taker]] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    nodes: dict[int, str] = field(default_factory=dict)  # one that needs a leaf, of several
    levels: list[list[list[int]]] = field(default_factory=list)

    def maker(self, leaf: int, batch: str) -> Maker:
        """Where the rows of a leaf come from, for those who look for one that was rejected."""
        number = int(batch or -1)
        if leaf in self.source_leaves:
            return Maker(number, topic=self.sources[self.source_leaves.index(leaf)].topic)
        names = [self.nodes.get(leaf, "")]
        if leaf in self.operators and self.operators[leaf].name:
            names.append(self.operators[leaf].name)
        return Maker(number, operator="/".join(names))

    def split(self, most: int) -> list["Program"]:
        """Programs whose work together is that of this one, at most this many: what one makes, no
        other needs. All of them read the sources."""
        parts: list[Program] = []
        for targets in _balanced(_connected(self), most):
            takers = {
                leaf: [each for each in some if _target(each) in targets]
                for leaf, some in self.takers.items()
            }
            levels = [
                [[leaf for leaf in level if ("operator", leaf) in targets] for level in phase]
                for phase in self.levels
            ]
            parts.append(replace(self, takers=takers, levels=levels))
        return parts or [self]


Target = tuple[str, int]  # what rows are for, and its number


def _target(taker: Taker) -> Target:
    match taker:
        case ToOperator(leaf):
            return "operator", leaf
        case ToTopic(output):
            return "topic", output
        case ToSpark(leaf):
            return "spark", leaf


def _connected(program: Program) -> list[set[Target]]:
    """Targets of which one takes rows of another, or both of the same operator."""
    found: dict[Target, set[Target]] = {}

    def connect(*targets: Target) -> None:
        together = set[Target]().union(*(found.get(each, {each}) for each in targets))
        found.update(dict.fromkeys(together, together))

    for leaf, takers in program.takers.items():
        for taker in takers:
            made = [("operator", leaf)] if leaf in program.operators else []
            connect(_target(taker), *made)
    return list({id(each): each for each in found.values()}.values())


def _balanced(groups: list[set[Target]], most: int) -> list[set[Target]]:
    """Unions of these groups, of about the same size."""
    parts: list[set[Target]] = [set() for _ in range(min(most, len(groups)))]
    for group in sorted(groups, key=lambda each: (-len(each), min(each))):
        min(parts, key=len).update(group)
    return parts


class Delivery:
    """Gives the rows that one task makes to all who take them."""

    def __init__(self, program: Program, outbox: Outbox, task: int) -> None:
        self._program = program
        self._outbox = outbox
        self._task = task
        self._written: dict[int, list[tuple[int, pa.RecordBatch]]] = {}  # with who made them
        self._handed: dict[int, list[HandedRows]] = {}
        self._rejected: dict[str, list[Rejection]] = {}

    def give(self, leaf: int, rows: pa.RecordBatch) -> None:
        for taker in self._program.takers.get(leaf, ()):
            match taker:
                case ToOperator(number, packer, selection):
                    with blame("leaf", number):
                        self._pack(number, packer, self._chosen(selection, rows, number, leaf))
                case ToTopic(number, selection):
                    with blame("output", number):
                        node = self._program.outputs[number].node
                        chosen = self._chosen(selection, rows, node, leaf)
                    if chosen.num_rows:
                        self._written.setdefault(number, []).append((leaf, chosen))
                case ToSpark(number, selection):
                    with blame("leaf", number):
                        chosen = self._chosen(selection, rows, number, leaf)
                        self._handed.setdefault(number, []).append(HandedRows(leaf, chosen))

    def _chosen(
        self, selection: Selection | None, rows: pa.RecordBatch, whose: int | str, giver: int
    ) -> pa.RecordBatch:
        """Rows of which a value cannot be computed are rejected, instead of failing the batch."""
        if selection is None:
            return rows
        chosen, refused = selection.checked(rows)
        if refused:
            node = whose if isinstance(whose, str) else self._program.nodes.get(whose, "")
            made = self._program.maker(giver, batch_id())
            for place, reason in refused:
                if (found := rejection(rows, place, Reason.of(reason), made)) is not None:
                    self._rejected.setdefault(node, []).append(found)
        return chosen

    def _pack(self, leaf: int, packer: Packer, rows: pa.RecordBatch) -> None:
        if self._outbox.stays:
            for bucket, part in packer.parts(rows):
                self._outbox.send(bucket, leaf, part, None)
            return
        for bucket, payload, file in packer.payloads(rows):
            self._outbox.send(bucket, leaf, payload, file)

    def open(self, known: Collection[str]) -> None:
        """Gives operators the rows that come before all others, but for those which have state."""
        for takers in self._program.takers.values():
            for taker in takers:
                if not isinstance(taker, ToOperator) or taker.opening is None:
                    continue
                if self._program.operators[taker.leaf].name not in known:
                    self._pack(taker.leaf, taker.packer, taker.opening)

    def finish(self) -> None:
        for number, written in self._written.items():
            output = self._program.outputs[number]
            with blame("output", number):
                encoded = encode_rows([rows for _, rows in written], output, self._task)
            self._reject_too_large(output, written, encoded.too_large)
            facts = {"output": number, "parts": encoded.parts, "records": encoded.records}
            self._outbox.tell(facts, encoded.content)
            if output.view:
                rows = encoded.rows
                content = b"" if rows is None else packed(rows).to_pybytes()
                self._outbox.tell({"view": number}, content)
        for leaf, handed in self._handed.items():
            write_handed_rows(self._program.handed, leaf, self._task, handed)
        for node, rejected in self._rejected.items():
            reasons = Counter(each.reason for each in rejected)
            facts = {"rejected": node, "reasons": dict(reasons)}
            self._outbox.tell(facts, encode_rejections(rejected))

    def _reject_too_large(
        self,
        output: Output,
        written: Sequence[tuple[int, pa.RecordBatch]],
        too_large: Sequence[TooLarge],
    ) -> None:
        ends = [*accumulate(rows.num_rows for _, rows in written)]
        for row, size in too_large:
            which = bisect_right(ends, row)
            leaf, rows = written[which]
            taken = f"{output.topic} takes {output.most:,} bytes (max.message.bytes)"
            reason = Reason("too large", f"a record of {size:,} bytes, and {taken}")
            made = self._program.maker(leaf, batch_id())
            found = rejection(rows, row - ends[which] + rows.num_rows, reason, made)
            if found is not None:
                self._rejected.setdefault(output.node, []).append(found)


class Shipped:
    """A program on its way to the workers: its bytes, which a worker reads once."""

    def __init__(self, program: Program) -> None:
        self._content: bytes = dumps(program)  # type: ignore[no-untyped-call]
        self._name = hashlib.blake2b(self._content, digest_size=16).hexdigest()

    def program(self) -> Program:
        found = _loaded.get(self._name)
        if found is None:
            if len(_loaded) >= _MOST_LOADED:
                _loaded.clear()
            # Written by the driver of this query, and sent by Spark as all functions are.
            found = CloudPickleSerializer().loads(self._content)  # type: ignore[no-untyped-call]
            _loaded[self._name] = found
        return found


_loaded: dict[str, Program] = {}
_MOST_LOADED = 16
