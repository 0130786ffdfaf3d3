"""Nodes of an app that runs, taken anew from its file: which ones, and whether that can be.

All is tried before anything changes. What is refused, or fails, leaves the app as it was.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import AppError, NodeChanged, TopicNotFound
from penstock.runtime.app import App
from penstock.runtime.declarations import Declaration, Derivation, Node, Outlet, Rejected, Topic
from penstock.runtime.folders import app_folder, begin_generations
from penstock.runtime.graph import unknown, written_by
from penstock.runtime.installation import Installation, folders_of
from penstock.runtime.loading import load_again, users_errors
from penstock.runtime.membership import MAIN, drop_outdated, is_alone
from penstock.runtime.nodes import Builder, add_output
from penstock.runtime.spark import use_here
from penstock.streams.spark.query.graph import QueryGraph
from penstock.streams.spark.query.program import Program


@dataclass(frozen=True)
class Renewal:
    """The app as it is going to be. `nodes` begin anew, in their order, and `removed` leave: they
    read what begins anew, and the file has them no more."""

    app: App
    nodes: tuple[str, ...]
    removed: tuple[str, ...]


def prepare(installation: Installation, file: Path, asked: Sequence[str]) -> Renewal:
    """Loads the file, takes the nodes asked for and all that hangs below them from it, and tries to
    build them. The others stay what they are. Raises AppError with what is wrong."""
    use_here(installation.session)
    app = installation.app
    fresh = load_again(file, app.name)
    fresh.data = app.data
    order = fresh.ordered_nodes()
    for name in asked:
        if name not in fresh.nodes:
            raise unknown(name, fresh.nodes, "rebuild asks for", whose=str(file))
    names = affected(app, fresh, asked)
    merged = with_nodes_of(app, fresh, names)
    merged.ordered_nodes()
    with users_errors(f"{file} cannot be run"):
        _try_to_build(installation, fresh, names)
    anew = tuple(node.name for node in order if node.name in names)
    return Renewal(merged, anew, tuple(sorted(names - fresh.nodes.keys())))


def apply(installation: Installation, renewal: Renewal) -> dict[str, int]:
    """Has the nodes begin a new generation, in an app none of whose queries runs; they have to be
    built then. Returns the generations, which stay begun after a crash too."""
    app = renewal.app
    folders = folders_of(app)
    generations = {}
    for name in renewal.nodes:
        # One that never ran begins with the first.
        has_been = folders[name].facts() is not None
        generations[name] = folders[name].generation + has_been
    home = app_folder(app.data, app.name)
    begin_generations(home, app.name, generations)
    drop_outdated(home, generations)
    installation.app, installation.folders = app, folders
    return generations


def affected(app: App, fresh: App, asked: Iterable[str]) -> set[str]:
    """The nodes asked for; all that read them, as the app is or as it is going to be; and what they
    read that the app does not have yet."""
    found = set(asked)
    while True:
        below = {
            node.name
            for each in (app, fresh)
            for node in each.nodes.values()
            if found.intersection(written_by(node, each.declared))
        }
        above = {
            name
            for node in (fresh.nodes[each] for each in found if each in fresh.nodes)
            for name in written_by(node, fresh.declared)
            if name in fresh.nodes and name not in app.nodes
        }
        if below | above <= found:
            return found
        found |= below | above


def with_nodes_of(app: App, fresh: App, names: set[str]) -> App:
    """The app with these nodes, and the streams that they read, of another one.

    Raises AppError for a stream that is another there, if nodes that stay read it too.
    """
    merged = copy.copy(app)
    merged.nodes = {n: node for n, node in app.nodes.items() if n not in names}
    merged.nodes |= {n: node for n, node in fresh.nodes.items() if n in names}
    staying = [node for node in app.nodes.values() if node.name not in names]
    read = _streams(fresh.declared, (fresh.nodes[n] for n in names if n in fresh.nodes))
    kept = _streams(app.declared, staying)
    for name, stream in read.items():
        if name in kept and kept[name] != stream:
            readers = [n.name for n in staying if name in _streams(app.declared, [n])]
            raise AppError(
                f"{name!r} is not what it was, and {', '.join(readers)} reads it too",
                hint=f"name all of them: {_command([*names, *readers], fresh)}",
            )
    derived = {n: node for n, node in merged.nodes.items() if isinstance(node, Derivation)}
    others = {n: it for n, it in app.declared.items() if not isinstance(it, Derivation)}
    merged.declared = {**others, **read, **derived}
    return merged


def _streams(declared: Mapping[str, Declaration], nodes: Iterable[Node]) -> dict[str, Declaration]:
    """What nodes read that no node writes."""
    found: dict[str, Declaration] = {}
    for node in nodes:
        for name in node.inputs:
            it = declared[name]
            if isinstance(it, Rejected) and isinstance(of := declared[it.stream], Topic):
                found[it.stream] = of
            if not isinstance(it, Derivation):
                found[name] = it
    return found


def _try_to_build(installation: Installation, fresh: App, names: set[str]) -> None:
    """Builds nodes that are never run: those that are to begin anew, and the others, which have to
    be what they were, or the app could not be started by this file again."""
    before = installation.app.nodes
    queries = {query.name: query for query in installation.queries}
    where = {built.name: built.query for built in installation.nodes}
    folders = folders_of(fresh)
    builder = Builder(installation.session, installation.source_log, fresh.declared, folders)
    graphs: dict[str, QueryGraph] = {}
    present = set(installation.log.topics())
    wanted = _with_those_above(fresh, names | before.keys())
    changed: dict[str, list[str]] = {}
    for node in fresh.ordered_nodes():
        if node.name not in wanted:
            continue
        query = node.name if is_alone(node) else where.get(node.name, MAIN)
        if query not in graphs:
            like = queries.get(query) or installation.queries[0]
            graphs[query] = _scratch(installation, like.graph.program)
        graph = graphs[query]
        built = builder.build(node, query, graph)
        if isinstance(node, Outlet):
            graph.hand_over_frame(built.frame)
        else:
            add_output(built, graph, partitions=1)
        if node.name in names:
            _check_topics(node, fresh.declared, present)
        elif node.name in before and (changes := folders[node.name].changes(built.facts())):
            changed[node.name] = changes
    for graph in graphs.values():
        graph.finish()
    if changed:
        name, changes = next(iter(changed.items()))
        raise NodeChanged(
            f"node {name!r} is not what it was either: {'; '.join(changes[:3])}",
            hint=f"name it too: {_command([*names, *changed], fresh)}",
        )


def _scratch(installation: Installation, like: Program) -> QueryGraph:
    program = Program(like.buckets, like.state, like.handed, like.folder)
    return QueryGraph(installation.session, program)


def _with_those_above(app: App, names: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in app.nodes and name not in found:
            found.add(name)
            waiting += written_by(app.nodes[name], app.declared)
    return found


def _check_topics(node: Node, declared: Mapping[str, Declaration], present: set[str]) -> None:
    for name, it in _streams(declared, [node]).items():
        if isinstance(it, Topic) and it.partitions is None and it.topic not in present:
            raise TopicNotFound(
                f"node {node.name!r} reads topic {it.topic!r}, which is not there",
                hint=f"penstock topics create {it.topic}, or declare {name} with partitions=4 "
                "to have it made",
            )


def _command(names: Iterable[str], app: App) -> str:
    return f"penstock rebuild {' '.join(name for name in app.nodes if name in set(names))}"
