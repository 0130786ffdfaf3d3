"""A look at the rows that a node has rejected, read from the log again."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

from penstock import clock
from penstock.runtime.status import InputStatus
from penstock.streams.source.progress import Progress
from penstock.streams.source.ranges import Range
from penstock.streams.source.rows import RowReader
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import SourceTopic, open_topic

_STEP = 50_000  # records between two looks at the time


def first_rejected(told: InputStatus, *, most: int, within: float) -> list[dict[str, Any]]:
    """The first rejected rows of an input; fewer where they are not found in so many seconds."""
    spec = replace(SourceSpec.parse(told.source), rejected=True)
    deadline = clock.monotonic() + within
    with (
        closing(open_topic(spec.log, spec.topic)) as topic,
        closing(_found(topic, RowReader(spec), told, deadline)) as rows,
    ):
        return list(islice(rows, most))


def _found(
    topic: SourceTopic, reader: RowReader, told: InputStatus, deadline: float
) -> Generator[dict[str, Any], None, None]:
    left = {
        int(number): (Progress(topic.bounds(int(number)).start), end)
        for number, end in told.next.items()
    }
    while left and clock.monotonic() < deadline:
        for number, (progress, end) in list(left.items()):
            until = min(progress.at + _STEP, end)
            part = Range(number, until, progress, clock.now_ms())
            yield from _rows(reader.read(topic, part))
            if progress.at >= end:
                del left[number]


def _rows(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
