"""How far apart rows may be that are joined, and time cut into panes as wide as that."""

import numpy as np

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers
from penstock.streams.algebra.joins.sides import LEFT


class Within:
    """A right row is from `lowest` to `highest` microseconds after the left one, both included.

    Raises InvalidInput when nothing lies between.
    """

    def __init__(self, lowest: int, highest: int) -> None:
        if highest < lowest:
            raise InvalidInput(
                f"nothing lies from {lowest} to {highest} microseconds",
                hint='the earlier bound comes first: within=("-1h", "5s")',
            )
        self.lowest, self.highest = lowest, highest
        self._width = highest - lowest + 1

    def pane(self, times: Numbers) -> Numbers:
        return times // self._width

    def partner_times(self, times: Numbers, side: int) -> tuple[Numbers, Numbers]:
        """The first and the last that a partner of a row of this side may have."""
        if side == LEFT:
            return times + self.lowest, times + self.highest
        return times - self.highest, times - self.lowest

    def partner_panes(self, side: int) -> range:
        """Those that have partners of the rows of a pane of this side, counted from it."""
        first, last = (self.pane(each) for each in self.partner_times(self._ends, side))
        return range(int(first[0]), int(last[1]) + 1)

    @property
    def _ends(self) -> Numbers:
        """The first and the last time of pane 0."""
        return np.array([0, self._width - 1])
