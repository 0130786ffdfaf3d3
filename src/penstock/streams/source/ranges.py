"""What one task reads."""

from typing import NamedTuple

from penstock.streams.source.progress import Progress


class Range(NamedTuple):
    """A partition's records from where `progress` is to before `until`.

    `planned` is the wall time in milliseconds when that was decided: the limit for events from
    the future where the log does not say when a record was appended.
    """

    partition: int
    until: int
    progress: Progress
    planned: int
