"""What becomes of a row, by its own partition's content alone: a pure function of the log.

A row is on time when it is not behind its partition's clock; a straggler when it is behind by no
more than what is still corrected; and otherwise rejected as late. The clock it is held against is
the one before it: the highest event time of the rows before, less the wait, or what producers
promised. Rows from the future are rejected and do not move the clock.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.streams.source.event_time import Rule
from penstock.streams.source.progress import Progress

ON_TIME, STRAGGLER, LATE, FUTURE, MISSING, UNPARSABLE = range(6)
REASONS = {LATE: "late", FUTURE: "future", MISSING: "missing", UNPARSABLE: "unparsable"}

_NEVER = np.iinfo(np.int64).min // 4  # far enough from the edge that durations can be subtracted

Micros = NDArray[np.int64]
Flags = NDArray[np.bool_]
Classes = NDArray[np.uint8]


class Promise(NamedTuple):
    """Punctuation: before row `before`, a producer says that no event before `time` follows."""

    before: int
    producer: str
    time: int


def classify(
    times: Micros,
    present: Flags,
    latest: Micros | int | None,
    rule: Rule,
    progress: Progress,
    promises: Sequence[Promise] = (),
) -> Classes:
    """The class of each row, in the partition's order; moves `progress` past them.

    `times` are microseconds of the years 1 to 9999, meant only where `present`; `latest` is the
    highest that each row's event time may be. Rows and promises count neither as read nor as kept
    here.
    """
    classes = np.full(len(times), MISSING, np.uint8)
    edges = [0, *(promise.before for promise in promises), len(times)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        if number:
            progress.promise(promises[number - 1].producer, promises[number - 1].time)
        part = slice(start, stop)
        limit = latest[part] if isinstance(latest, np.ndarray) else latest
        classes[part] = _between_promises(times[part], present[part], limit, rule, progress)
    return classes


def _between_promises(
    times: Micros,
    present: Flags,
    latest: Micros | int | None,
    rule: Rule,
    progress: Progress,
) -> Classes:
    future = np.zeros(len(times), np.bool_) if latest is None else present & (times > latest)
    counted = present & ~future
    high = _NEVER if progress.high is None else progress.high
    highs = np.maximum.accumulate(np.concatenate(([high], np.where(counted, times, _NEVER))))
    promised = min(progress.promised.values(), default=_NEVER)
    clocks = np.full(len(times), promised)
    if rule.wait is not None:
        clocks = np.maximum(clocks, highs[:-1] - rule.wait)
    if highs[-1] > _NEVER:
        progress.high = int(highs[-1])

    classes = np.full(len(times), LATE, np.uint8)
    classes[times >= clocks - rule.correct_for] = STRAGGLER
    classes[times >= clocks] = ON_TIME
    classes[future] = FUTURE
    classes[~present] = MISSING
    return classes
