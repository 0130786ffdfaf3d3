"""How much of what was read lately was rejected."""

from collections import deque

SPAN = 300.0  # seconds
_LEAST = 20  # rows: of fewer, a share says little


class RejectedShare:
    """Of the rows read in the last minutes. Times are seconds of any clock, and rows are counted
    from the beginning, of which `read` and `rejected` came before."""

    def __init__(self, now: float, read: int, rejected: int) -> None:
        self._told = deque([(now, read, rejected)])

    def note(self, now: float, read: int, rejected: int) -> None:
        if (read, rejected) != self._told[-1][1:]:
            self._told.append((now, read, rejected))

    def at(self, now: float) -> float | None:
        """From 0 to 1; None when too few rows came."""
        # The last before the span stays: what came since is what counts.
        while len(self._told) > 1 and self._told[1][0] <= now - SPAN:
            self._told.popleft()
        (_, before, already), (_, read, rejected) = self._told[0], self._told[-1]
        return (rejected - already) / (read - before) if read - before >= _LEAST else None
