"""How fast a node is, from what it had read at the ends of its batches."""

from collections import deque

_LEAST = 10.0  # seconds


class Rate:
    """Rows a second over the last seconds, at least so many that two batches fit in.

    Times are seconds of any clock, and what was read is counted from the beginning of time.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()
        self._batch = 0.0

    def note(self, end: float, read: int, *, began: float, before: int) -> None:
        """A batch ended that began with `before` rows read."""
        if not self._ends:
            self._ends.append((began, before))
        self._ends.append((end, read))
        self._batch = end - began

    def at(self, now: float) -> float:
        since = now - max(_LEAST, 2 * self._batch)
        # The last end before the span stays, as what has been read since then is what counts.
        while len(self._ends) > 1 and self._ends[1][0] <= since:
            self._ends.popleft()
        if not self._ends:
            return 0.0
        start, before = self._ends[0]
        return max(0, self._ends[-1][1] - before) / max(now - max(start, since), 0.001)
