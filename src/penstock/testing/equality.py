"""Stream equals batch: the same rows, cut and interleaved anyhow, give what one batch gives."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock.runtime.app import App
from penstock.runtime.declarations import Derivation
from penstock.streams.source.event_time import TIMES
from penstock.testing.run import Row, Run

_DIGITS = 12  # in which sums of doubles agree, whatever the order of their rows


def assert_stream_equals_batch(
    app: App,
    rows: Mapping[str, Sequence[Row | bytes]],
    *,
    spark: SparkSession | None = None,
    partitions: int = 2,
    variants: int = 2,
    seed: int = 0,
    crash: str | None = None,
) -> None:
    """Runs the app as a stream `variants` times, and as a batch, and compares every node.

    Each stream's rows are dealt to its partitions once, in turn unless a row has a `_partition`;
    the order inside a partition is part of the data. What differs between the variants is how the
    partitions interleave, where batches are cut, and how much arrives between two runs; the
    `seed` makes it repeatable. With `crash` each variant dies once at that point.
    """
    dice = random.Random(seed)
    dealt = {name: _deal(some, partitions) for name, some in rows.items()}
    total = sum(len(some) for some in rows.values())
    for variant in range(variants):
        max_rows = dice.randint(1, max(1, total))
        # Few and large batches too, but never so many that a test takes minutes.
        max_rows = max(max_rows, total // 8, 1)
        with Run(app, spark=spark, partitions=partitions, max_rows=max_rows) as run:
            for piece in _pieces(dealt, dice, pieces=variant + 1):
                for stream, partition, some in piece:
                    run.feed(stream, some, partition=partition)
                if crash is not None and not run.crashes:
                    run.crash(crash)
                run.drain()
            # A batch has all rows at once, and with them the end of time.
            run.advance(TIMES[-1])
            run.drain()
            _compare(run, f"variant {variant} of seed {seed}, {max_rows} rows a batch")


def _compare(run: Run, what: str) -> None:
    for node in run.app.ordered_nodes():
        if not isinstance(node, Derivation):
            continue
        is_table = any(b.name == node.name and b.output and b.output.key for b in run._nodes())
        stream = run.view(node.name) if is_table else run.topic(node.name)
        batch = run.batch(node.name)
        left, right = _counted(stream), _counted(batch)
        assert left == right, (
            f"{node.name} is not the same as a stream and as a batch ({what}):\n"
            f"  only in the stream: {_less(left, right)}\n"
            f"  only in the batch:  {_less(right, left)}"
        )


Piece = list[tuple[str, int, list[Row | bytes]]]


def _deal(rows: Sequence[Row | bytes], partitions: int) -> list[list[Row | bytes]]:
    dealt: list[list[Row | bytes]] = [[] for _ in range(partitions)]
    for number, row in enumerate(rows):
        own = None if isinstance(row, bytes) else row.get("_partition")
        dealt[number % partitions if own is None else own].append(row)
    return dealt


def _pieces(
    dealt: Mapping[str, list[list[Row | bytes]]], dice: random.Random, *, pieces: int
) -> list[Piece]:
    """The rows of every partition in so many pieces, cut at random."""
    cut: list[Piece] = [[] for _ in range(pieces)]
    for stream, partitions in dealt.items():
        for number, some in enumerate(partitions):
            edges = sorted(dice.randint(0, len(some)) for _ in range(pieces - 1))
            ends = [*edges, len(some)]
            for piece, start, end in zip(cut, [0, *edges], ends, strict=True):
                if end > start:
                    piece.append((stream, number, some[start:end]))
    for piece in cut:
        dice.shuffle(piece)
    return cut


def _counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for row in rows:
        text = repr({name: _comparable(row[name]) for name in sorted(row)})
        counted[text] = counted.get(text, 0) + 1
    return counted


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isnan(value) else float(f"{value:.{_DIGITS}g}") + 0.0
    if isinstance(value, Mapping):
        return {name: _comparable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_comparable(each) for each in value]
    return value


def _less(left: Mapping[str, int], right: Mapping[str, int]) -> list[str]:
    more = {text: n - right.get(text, 0) for text, n in left.items()}
    return [f"{n} x {text}" for text, n in more.items() if n > 0][:5]
