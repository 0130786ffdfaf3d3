"""What a query is made of, noted for `penstock explain APP`: its sources, its operators by level,
what Spark computes between them, and its topics."""

from typing import Any

from penstock.runtime.engine import BuiltQuery


def drawn(query: BuiltQuery) -> dict[str, Any]:
    """What JSON can hold: of each operator its name, its level in the batch, its key, what it reads
    and the nodes that share it."""
    graph, program = query.graph, query.graph.program
    stages = [level for phase in program.levels for level in phase]
    operators = [
        {
            "level": number + 1,
            "name": program.operators[leaf].name,
            "key": list(kernel.keys),
            "reads": sorted(_above(query, leaf)),
            "nodes": sorted(graph.users.get(leaf, ())),
        }
        for number, level in enumerate(stages)
        for leaf in level
        if (kernel := program.operators[leaf].kernel) is not None
    ]
    segments = [
        {"nodes": sorted(graph.users[leaf.number]), "columns": leaf.schema.names}
        for leaf in graph.leaves
        if leaf.frame is not None
    ]
    return {
        "buckets": program.buckets,
        "sources": [{"name": each.name, "topic": each.topic} for each in program.sources],
        "levels": len(stages),
        "jobs": len(program.levels),
        "operators": operators,
        "through_spark": segments,
        "outputs": [{"node": each.node, "topic": each.topic} for each in program.outputs],
        "sinks": [name for name, _, _ in query.sinks],
    }


def _above(query: BuiltQuery, leaf: int) -> set[str]:
    """The sources, operators and segments that an operator takes rows of."""
    graph, program = query.graph, query.graph.program
    found = set()
    for number, takers in program.takers.items():
        if any(getattr(taker, "leaf", None) == leaf for taker in takers):
            if number in program.operators:
                found.add(program.operators[number].name or "rows by key")
            elif number in program.source_leaves:
                found.add(program.sources[program.source_leaves.index(number)].name)
            else:
                found.add(f"{min(graph.users[number])}, by Spark")
    return found
