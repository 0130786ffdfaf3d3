"""How the nodes of an app hang together: checked before Spark starts, and put in order."""

import inspect
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pyspark.sql import DataFrame

from penstock.errors import CyclicNodes, DuplicateName, InvalidInput, UnknownName, did_you_mean
from penstock.log.policy import check_topic_name
from penstock.runtime.declarations import Declaration, Derivation, Function, Node, Rejected, View
from penstock.serve.catalog import versions_of


def parameters_of(function: Function, node: str) -> tuple[str, ...]:
    """The names that a node's function asks for."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidInput(
                f"node {node!r} takes *{parameter.name}, which names no stream",
                hint="name each stream or table that it reads as a parameter of its own",
            )
        if parameter.default is parameter.empty:
            found.append(parameter.name)
    if not found:
        raise InvalidInput(
            f"node {node!r} reads nothing",
            hint="its function's parameters are the names of the streams and tables it reads",
        )
    return tuple(found)


def sql_function(text: str) -> tuple[Function, tuple[str, ...]]:
    """The function that computes a statement, and the names that it asks for."""
    from penstock.streams.sql import tables_of

    names = tables_of(text)

    def computed(*frames: DataFrame) -> DataFrame:
        from penstock.streams.spark.sql import sql

        named: dict[str, Any] = dict(zip(names, frames, strict=True))
        return sql(text, **named)

    return computed, names


def check_name(name: str, taken: Iterable[str]) -> None:
    """A name can be a topic's, and a parameter of a Python function."""
    check_topic_name(name)
    if not name.isidentifier():
        raise InvalidInput(
            f"{name!r} cannot be the name of a parameter",
            hint="use letters, digits and _; topic= names a topic that is called otherwise",
        )
    if name in taken:
        raise DuplicateName(
            f"there are two things called {name!r} in this app", hint="give one another name"
        )


def check_view_name(name: str, *, versions: bool, declared: Mapping[str, Declaration]) -> None:
    """A view's name is one in SQL too, where large and small letters are the same; its versions
    have another."""
    if name.lower().startswith("sqlite_"):
        raise InvalidInput(f"{name!r} is a name of SQLite's own", hint="give the view another one")
    views = [it for it in declared.values() if isinstance(it, View)]
    taken = {it.name.lower() for it in views}
    taken |= {versions_of(it.name.lower()) for it in views if it.versions_ms is not None}
    asked = {name.lower(), *([versions_of(name.lower())] if versions else [])}
    if asked & taken:
        raise DuplicateName(
            f"view {name!r}, or its versions, would be called as another view in SQL",
            hint=f"give one another name; there are: {', '.join(sorted(taken))}",
        )


def check_topics(declared: Mapping[str, Declaration]) -> None:
    """Refuses a derivation that would write into a topic which something else stands for."""
    owners: dict[str, str] = {}
    derived = {it.topic for it in declared.values() if isinstance(it, Derivation)}
    for name, it in declared.items():
        if isinstance(it, Rejected) or it.topic not in derived:
            continue
        if it.topic in owners:
            raise DuplicateName(
                f"{owners[it.topic]!r} and {name!r} both have the topic {it.topic!r}",
                hint="what a node writes is a topic of its own; give it another one with topic=",
            )
        owners[it.topic] = name


def in_order(nodes: Mapping[str, Node], declared: Mapping[str, Declaration]) -> list[Node]:
    """Every node after those that it reads from. Raises UnknownName and CyclicNodes."""
    for node in nodes.values():
        for name in node.inputs:
            if name not in declared:
                raise unknown(name, declared, f"node {node.name!r} asks for")
    sorter = TopologicalSorter(
        {
            node.name: [name for name in written_by(node, declared) if name in nodes]
            for node in nodes.values()
        }
    )
    try:
        return [nodes[name] for name in sorter.static_order()]
    except CycleError as found:
        raise CyclicNodes(
            f"these nodes wait for each other: {' -> '.join(reversed(found.args[1]))}",
            hint="a node cannot read what is made of its own output; take one of them out",
        ) from None


def written_by(node: Node, declared: Mapping[str, Declaration]) -> list[str]:
    """What a node reads from: its inputs, and the nodes whose rejected rows it reads."""
    found = [declared[name] for name in node.inputs]
    return [each.stream if isinstance(each, Rejected) else each.name for each in found]


def downstream(
    nodes: Mapping[str, Node], name: str, declared: Mapping[str, Declaration] | None = None
) -> set[str]:
    """The nodes that read what this one writes, directly or not; with `declared` also those that
    read rows which it rejects."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        upper = waiting.pop()
        read = {upper, *(n for n, it in (declared or {}).items() if _is_rejected_of(it, upper))}
        below = {node.name for node in nodes.values() if read.intersection(node.inputs)} - found
        found |= below
        waiting += below
    return found


def _is_rejected_of(declared: Declaration, node: str) -> bool:
    return isinstance(declared, Rejected) and declared.stream == node


def unknown(name: str, known: Iterable[str], who: str, whose: str = "this app") -> UnknownName:
    known = list(known)
    there = ", ".join(sorted(known)) or "nothing yet"
    return UnknownName(
        f"{who} {name!r}, which {whose} does not have",
        hint=did_you_mean(name, known) or f"it has: {there}",
    )
