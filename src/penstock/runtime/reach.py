"""Whether what was appended to a topic has arrived in a view, however many nodes lie between.

The way goes from node to node: once one has committed a batch that covers what is looked for, all
that it made of it lies before the present end of the topic it writes, which is what the next one
has to read. The last step is the view's table, which says up to where it has its topic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from penstock.errors import InvalidInput, UnknownName
from penstock.events.record import Position
from penstock.runtime.folders import NodeFolder, app_folder
from penstock.runtime.status import AppStatus

Offsets = dict[int, int]
Ends = Callable[[str], Offsets]
"""Where the partitions of a topic end now."""


@dataclass(frozen=True)
class Hop:
    """A node on the way: it reads topics and writes one."""

    node: str
    folder: NodeFolder
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Short:
    """What is behind: a node, or the view itself, in one partition of a topic that it reads."""

    who: str
    node: str
    topic: str
    partition: int
    at: int
    wanted: int

    def __str__(self) -> str:
        lacks = self.wanted - self.at
        records = "1 record" if lacks == 1 else f"{lacks:,} records"
        return f"{self.who} has read {self.topic}/{self.partition} up to {self.at}, {records} short"


class Reach:
    """Asked again and again, it goes on from where it was."""

    def __init__(
        self, hops: Sequence[Hop], wanted: Mapping[str, Offsets], view: str, ends: Ends
    ) -> None:
        """`wanted` are the offsets, by topic and partition, before which the view, which is a
        node's name, has to have seen all."""
        self._view = view
        self._ends = ends
        self._wanted = {topic: dict(offsets) for topic, offsets in wanted.items()}
        self._way = _way(hops, view)
        self._topic = self._way[-1].output

    def short(self) -> Short | None:
        """The first node that is behind; None when all have arrived and `goal` is known."""
        while self._way:
            hop = self._way[0]
            asked = {topic: self._wanted[topic] for topic in hop.inputs if topic in self._wanted}
            if asked:
                if found := _behind(hop, asked):
                    return found
                made = self._wanted.setdefault(hop.output, {})
                for number, end in self._ends(hop.output).items():
                    made[number] = max(end, made.get(number, 0))
            self._way.pop(0)
        return None

    def goal(self) -> Offsets | None:
        """The offsets of the view's own topic that its table has to have; None before they are
        known."""
        return None if self.short() else self._wanted.get(self._topic, {})

    def short_of_table(self, topic: str, offsets: Mapping[int, int]) -> Short | None:
        """What is behind, where the view's table has this topic up to these offsets."""
        if found := self.short():
            return found
        for number, end in self._wanted.get(self._topic, {}).items():
            at = offsets.get(number, 0) if topic == self._topic else 0
            if at < end:
                return Short(
                    f"the table of view {self._view!r}", self._view, self._topic, number, at, end
                )
        return None


def topics_above(hops: Sequence[Hop], view: str) -> list[str]:
    """Those that a view is made of, and its own."""
    way = _way(hops, view)
    return sorted({topic for hop in way for topic in hop.inputs} | {way[-1].output})


def _way(hops: Sequence[Hop], view: str) -> list[Hop]:
    """The view and all it is made of, each after those that it reads."""
    writers = {hop.output: hop for hop in hops if hop.output}
    above: dict[str, list[str]] = {}
    waiting = [hop for hop in hops if hop.node == view]
    if not waiting:
        raise UnknownName(
            f"no node writes view {view!r} any more", hint="penstock status shows all"
        )
    while waiting:
        hop = waiting.pop()
        upper = [writers[topic] for topic in hop.inputs if topic in writers]
        above[hop.node] = [each.node for each in upper]
        waiting += [each for each in upper if each.node not in above]
    named = {hop.node: hop for hop in hops}
    return [named[name] for name in TopologicalSorter(above).static_order()]


def _behind(hop: Hop, wanted: Mapping[str, Offsets]) -> Short | None:
    read = hop.folder.read_by(hop.folder.committed)
    for topic, offsets in wanted.items():
        spans = read.get(topic, {})
        for number, end in offsets.items():
            at = spans[number][1] if number in spans else 0
            if at < end:
                return Short(f"node {hop.node!r}", hop.node, topic, number, at, end)
    return None


def hops_of(data: Path, status: AppStatus) -> list[Hop]:
    """The nodes of an app that runs or has run, as it tells them."""
    home = app_folder(data, status.app)
    return [
        Hop(
            node.name,
            NodeFolder(status.app, node.name, home / node.name),
            tuple(each.topic for each in node.inputs),
            node.output,
        )
        for node in status.nodes
    ]


def ends_in(log: str) -> Ends:
    """The ends of the topics in a folder or at an address."""
    from penstock.streams.source.topic import open_topic

    def ends(name: str) -> Offsets:
        topic = open_topic(log, name)
        try:
            return {number: topic.bounds(number).end for number in range(topic.partitions())}
        finally:
            topic.close()

    return ends


def wanted_of(positions: Iterable[Position], ends: Ends) -> dict[str, Offsets]:
    """The offsets that cover the positions. Raises InvalidInput for one that is not there yet."""
    wanted: dict[str, Offsets] = {}
    for position in positions:
        end = ends(position.topic).get(position.partition, 0)
        if position.offset >= end:
            raise InvalidInput(
                f"{position} is not in the log",
                hint=f"{position.topic}/{position.partition} ends at offset {end}",
            )
        offsets = wanted.setdefault(position.topic, {})
        offsets[position.partition] = max(position.offset + 1, offsets.get(position.partition, 0))
    return wanted
