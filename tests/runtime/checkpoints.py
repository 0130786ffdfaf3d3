"""The plans and commits of a node's query as an engine would have written them."""

from pathlib import Path

from penstock.runtime.folders import NodeFolder, app_folder
from penstock.runtime.query_folder import CommittedBatch, PlannedBatch
from penstock.streams.source.offsets import SourceOffset
from penstock.streams.source.progress import Progress

Spans = dict[str, dict[int, tuple[int, int]]]


def a_folder(data: Path, node: str, *, app: str = "shop", **sources: str) -> NodeFolder:
    """Of a node that reads these sources, each from a topic, in a query of its own."""
    folder = NodeFolder(app, node, app_folder(data, app) / node)
    folder.settle({"sources": sources, "operators": {}, "key": [], "query": node})
    folder.query.settle(1, {node: 1})
    return folder


def note(folder: NodeFolder, batch: int, spans: Spans, *, commits: bool = True) -> None:
    """A batch that has read these offsets of its sources."""
    facts = folder.facts()
    assert facts is not None
    offsets = {
        source: SourceOffset(
            source,
            "identity",
            0,
            None,
            {number: end for number, (_, end) in partitions.items()},
            {number: Progress(begin) for number, (begin, _) in partitions.items()},
            timed=False,
        )
        for source, partitions in spans.items()
    }
    topics = {source: facts["sources"].get(source, source) for source in spans}
    folder.query.write_plan(PlannedBatch(batch, 0, offsets, topics, {}, {}))
    if commits:
        committed = CommittedBatch(batch, offsets, nodes={folder.node: folder.generation})
        folder.query.write_commit(committed)
