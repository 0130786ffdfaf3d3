"""The offsets and commits of a node as Spark would have written them."""

import json
from pathlib import Path

from penstock.runtime.folders import NodeFolder, app_folder

Spans = dict[str, dict[int, tuple[int, int]]]


def a_folder(data: Path, node: str, *, app: str = "shop", **sources: str) -> NodeFolder:
    """Of a node that reads these sources, each from a topic."""
    folder = NodeFolder(app, node, app_folder(data, app) / node)
    folder.settle({"buckets": 1, "sources": sources, "operators": {}, "key": []})
    return folder


def note(folder: NodeFolder, batch: int, spans: Spans, *, commits: bool = True) -> None:
    """A batch that has read these offsets of its sources."""
    checkpoint = Path(folder.checkpoint)
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    lines = ["v1", json.dumps({"batchTimestampMs": 0})]
    for source, partitions in spans.items():
        entries = {str(n): {"at": begin, "next": end} for n, (begin, end) in partitions.items()}
        lines.append(json.dumps({"source": source, "partitions": entries}))
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    if commits:
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")
