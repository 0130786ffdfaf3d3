"""Which query each node runs in, and how nodes move from one to another.

All nodes begin together in the main query. One that comes later, or is built anew, begins in a
query beside it, from the beginning of its inputs, and is attached when it has caught up. One that
fails is detached, so that the others go on; it goes on by itself from where it was, and is attached
again when it has caught up. State does not move: a query says in its commits which versions it has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from penstock import clock
from penstock.errors import NodeChanged
from penstock.runtime.declarations import Node, Outlet
from penstock.runtime.engine import BuiltQuery, Engine
from penstock.runtime.folders import NodeFolder
from penstock.runtime.nodes import Built, writer_name
from penstock.runtime.query_folder import (
    BESIDE,
    NONE,
    QUERIES,
    CommittedBatch,
    PlannedBatch,
    QueryFolder,
)
from penstock.streams.source.offsets import SourceOffset, least_clock
from penstock.streams.source.progress import Progress
from penstock.streams.source.topic import open_topic

MAIN = "main"  # the query of all nodes that do not ask for one of their own


def is_alone(node: Node) -> bool:
    return isinstance(node, Outlet) or node.alone


def assign(home: Path, order: Sequence[Node], folders: Mapping[str, NodeFolder]) -> dict[str, str]:
    """The query of each node. Raises NodeChanged for one that was away while others went on."""
    names = sorted(each.name for each in (home / QUERIES).glob("*/"))
    members = {name: QueryFolder(home, name).nodes for name in names}
    going = [
        n
        for n, generation in members.get(MAIN, {}).items()
        if n in folders and folders[n].generation == generation
    ]
    has_begun = bool(going) and QueryFolder(home, MAIN).committed != NONE
    if not has_begun:
        _begin_anew(QueryFolder(home, MAIN), is_new=not going)
    found: dict[str, str] = {}
    for node in order:
        generation = folders[node.name].generation
        inside = [name for name in names if members[name].get(node.name) == generation]
        if is_alone(node):
            found[node.name] = node.name
            if node.name in names and node.name not in inside:
                _begin_anew(QueryFolder(home, node.name), is_new=True)
        elif inside:
            found[node.name] = MAIN if MAIN in inside else inside[0]
        elif not has_begun:
            found[node.name] = MAIN
        elif folders[node.name].has_begun:
            raise NodeChanged(
                f"node {node.name!r} was not part of the app for a while, and has not seen what "
                "came meanwhile",
                hint=f"--rebuild {node.name} builds it anew beside what it wrote, "
                f"--reset {node.name} forgets that first",
            )
        else:
            found[node.name] = _free(names)
    return found


def _begin_anew(query: QueryFolder, *, is_new: bool) -> None:
    """Forgets what a query did of which no node is left; its batches are counted on. If all its
    nodes are new, also what it was about to do."""
    if query.committed != NONE or (is_new and query.planned != NONE):
        query.write_begins({})
        query.write_commit(CommittedBatch(query.planned))


def leave(home: Path, folder: NodeFolder) -> None:
    """Takes a node out of the query that it ran in."""
    for path in (home / QUERIES).glob("*/"):
        query = QueryFolder(home, path.name)
        left = {name: each for name, each in query.nodes.items() if name != folder.node}
        if left == query.nodes:
            continue
        committed = query.commit(query.committed)
        if not left and query.name != MAIN:
            query.remove()
        elif committed is not None:
            query.write_commit(replace(committed, nodes=left))
        else:
            query.settle(query.buckets or 1, left)


def drop_outdated(home: Path, generations: Mapping[str, int]) -> None:
    """Removes queries beside whose nodes have all begun anew before they caught up."""
    for path in (home / QUERIES).glob(f"{BESIDE}-*"):
        nodes = QueryFolder(home, path.name).nodes
        if all(generations.get(name, 0) > each for name, each in nodes.items()):
            QueryFolder(home, path.name).remove()


def _free(taken: Sequence[str]) -> str:
    numbers = (f"{BESIDE}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in numbers if name not in taken)


def detach(main: BuiltQuery, source_log: str, nodes: Iterable[Built], app: str) -> None:
    """Has these nodes go on in a query of their own, from the last batch that was committed."""
    folder, program = main.folder, main.graph.program
    committed = folder.commit(folder.committed)
    leaving = {built.name: built for built in nodes}
    staying = {built.name: built for built in main.nodes if built.name not in leaving}
    nodes_of = {built.name: built.folder.generation for built in leaving.values()}
    side = QueryFolder(folder.app, _free([each.name for each in (folder.app / QUERIES).iterdir()]))
    side.settle(program.buckets, nodes_of)
    if committed is None:  # both begin from the beginning
        side.write_begins(folder.begins())
        folder.settle(program.buckets, {n: each.folder.generation for n, each in staying.items()})
        return
    offsets: dict[str, SourceOffset] = {}
    tables = []
    for built in leaving.values():
        for spec in built.sources:
            offsets[spec.name] = committed.offsets[spec.name]
        for topic in built.inner:
            if topic.name in staying:
                upper = staying[topic.name]
                sources = [program.sources[each].name for each in upper.clock_sources]
                now = least_clock([committed.offsets[each].clock for each in sources])
                promised = {} if now is None else {writer_name(app, upper.folder): now}
                ends = committed.ends.get(topic.topic, {})
                offsets[topic.name] = _at(source_log, topic.name, topic.topic, ends, now, promised)
                if topic.key:
                    tables.append(topic.name)
    operators = {state for built in leaving.values() for state in built.place.states.values()}
    topics = {built.output.topic for built in leaving.values() if built.output}
    side.prime(tables)
    side.write_commit(
        replace(
            committed,
            offsets=offsets,
            versions={n: each for n, each in committed.versions.items() if n in operators},
            ends={topic: each for topic, each in committed.ends.items() if topic in topics},
            marks={topic: each for topic, each in committed.marks.items() if topic in topics},
            counts={n: each for n, each in committed.counts.items() if n in operators},
            nodes=nodes_of,
            rejected={n: each for n, each in committed.rejected.items() if n in nodes_of},
        )
    )
    # From now on they belong to the other one; a crash before this leaves them here.
    left = {name: each for name, each in committed.nodes.items() if name not in leaving}
    folder.write_commit(replace(committed, nodes=left))


def _at(
    log: str,
    name: str,
    topic_name: str,
    ends: Mapping[int, int],
    now: int | None,
    promised: Mapping[str, int],
) -> SourceOffset:
    """The place in the topic of a node at which a batch ended."""
    topic = open_topic(log, topic_name)
    try:
        nexts = {number: ends.get(number, 0) for number in range(topic.partitions())}
        identity = str(topic.id)
    finally:
        topic.close()
    progress = {
        number: Progress(end, promised=dict(promised), read=end, kept=end)
        for number, end in nexts.items()
    }
    return SourceOffset(name, identity, clock.now_ms(), now, nexts, progress, timed=now is not None)


def attach(main: Engine, side: Engine) -> bool:
    """Has the nodes of another query join the main one, if both can be brought to the same place;
    both engines are at rest, and are not used after this."""
    limits = _furthest(main.offsets, side.offsets)
    main.stop_at(limits)
    while main.step():
        pass
    # Rejected rows are read from their topic in any query.
    outputs = {output.topic for output in main.query.graph.program.outputs}
    written = {topic: each for topic, each in main.committed.ends.items() if topic in outputs}
    inner = {spec.name: written[spec.topic] for spec in side.sources if spec.topic in written}
    side.stop_at(limits | inner)
    while side.step():
        pass
    for name, offset in side.offsets.items():
        goal = inner[name] if name in inner else main.offsets.get(name, offset).next
        if any(offset.next.get(number, 0) != end for number, end in goal.items()):
            return False
    ours, theirs = main.committed, side.committed
    offsets = {name: each for name, each in theirs.offsets.items() if name not in inner}
    # What the main query does not read any more, it knows nothing of.
    offsets |= {name: each for name, each in ours.offsets.items() if name in main.offsets}
    begins = {n: each for n, each in main.query.folder.begins().items() if n in main.offsets}
    batch = max(ours.batch, theirs.batch) + 1
    main.query.folder.write_begins(side.query.folder.begins() | begins)
    main.query.folder.write_commit(
        replace(
            ours,
            batch=batch,
            offsets=offsets,
            versions=theirs.versions | ours.versions,
            ends=theirs.ends | ours.ends,
            marks=theirs.marks | ours.marks,
            counts=theirs.counts | ours.counts,
            nodes=theirs.nodes | ours.nodes,
            rejected=theirs.rejected | ours.rejected,
        )
    )
    # Only now, as it is no batch to be run: who asks how far this one has read finds it there.
    topics = {spec.name: spec.topic for spec in (*side.sources, *main.sources)}
    versions = theirs.versions | ours.versions
    main.query.folder.write_plan(PlannedBatch(batch, clock.now_ms(), offsets, topics, {}, versions))
    side.query.folder.remove()
    return True


def _furthest(
    *offsets: Mapping[str, SourceOffset],
) -> dict[str, dict[int, int]]:
    """Where to stop in each source, so that neither has to go back."""
    limits: dict[str, dict[int, int]] = {}
    for some in offsets:
        for name, offset in some.items():
            parts = limits.setdefault(name, {})
            for number, end in offset.next.items():
                parts[number] = max(end, parts.get(number, 0))
    return limits
