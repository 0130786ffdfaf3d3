"""The wheel of an arena: which rows are due at a clock, without a look at those that are not.

It is a file beside the others, with the lists of rows that `wheel_loops` describes, at eight
bytes a row. As they, it is worth what the head of the arena says, in which its position stands.
"""

from pathlib import Path

import numpy as np

from penstock.events.compiled import Mask, Numbers, frozen
from penstock.streams.state import wheel_loops
from penstock.streams.state.index_loops import LIVE_ROWS, POSITION, Tables
from penstock.streams.state.mapped import MappedFile, contradicts_itself
from penstock.streams.state.wheel_loops import FIRST_ROW, OVERDUE, Nodes, WheelTables

NEVER_YET = -(2**63)  # the position of a new one

_NODE = 8  # bytes
_LEAST_FOUND = 1 << 10


def _bytes_for(rows: int) -> int:
    return (FIRST_ROW + rows) * _NODE


class Wheel:
    """Used by whoever has the arena, and only in a step.

    Raises StateDamaged when the file contradicts itself.
    """

    def __init__(self, file: MappedFile, due_at: int) -> None:
        self.file = file
        self._due_at = due_at

    @classmethod
    def create(cls, path: Path, due_at: int, rows: int) -> "Wheel":
        """An empty one, with room for so many rows."""
        wheel = cls(MappedFile(path, _bytes_for(rows)), due_at)
        wheel_loops.empty_lists(wheel._nodes)
        return wheel

    @property
    def _nodes(self) -> Nodes:
        return self.file.bytes.view(np.uint32)

    def attach(self, tables: Tables) -> None:
        """The wheel takes these for the arena's, until it is given others."""
        self._tables = WheelTables(
            nodes=self._nodes,
            records=tables.records,
            head=tables.head,
            stride=tables.stride,
            due_at=self._due_at,
        )

    def grow(self, rows: int) -> None:
        """Room for so many rows in all; what was attached is out of date then."""
        self.file.grow(_bytes_for(rows))

    def is_sound(self, rows: int) -> bool:
        size = len(self.file.bytes)
        return size >= _bytes_for(rows) and size % _NODE == 0

    @property
    def position(self) -> int:
        """The highest clock that it was asked for, or brought to."""
        return int(self._tables.head[POSITION])

    def move_on(self, clock: int) -> None:
        """Brings the position to the clock; one that is before it changes nothing."""
        if wheel_loops.move_on(self._tables, clock) < 0:
            raise contradicts_itself(self.file.path.parent)

    def move(self, rows: Numbers, dues: Numbers, valid: Mask) -> None:
        """Gives rows another due, none where it is not valid; of a row twice, the last."""
        if not wheel_loops.move_rows(
            self._tables,
            frozen(rows),
            frozen(np.ascontiguousarray(dues)),
            frozen(valid),
            np.empty(1, np.int64),
        ):
            raise contradicts_itself(self.file.path.parent)

    def take_out(self, rows: Numbers) -> None:
        if not wheel_loops.take_rows_out(self._tables, frozen(rows), np.empty(1, np.int64)):
            raise contradicts_itself(self.file.path.parent)

    def due(self, clock: int) -> Numbers:
        """The rows that are due at the clock, in no order that can be relied on."""
        self.move_on(clock)
        ends = self._nodes[[2 * OVERDUE + 1, 2 * OVERDUE]].astype(np.int64)
        parts: list[Numbers] = []
        count, most = 0, int(self._tables.head[LIVE_ROWS])
        while ends[0] != OVERDUE:
            part = np.empty(max(_LEAST_FOUND, count), np.int64)
            found = wheel_loops.overdue_rows(self._tables, clock, ends, part)
            count += int(found)
            if found < 0 or count > most:
                raise contradicts_itself(self.file.path.parent)
            parts.append(part[:found])
        return np.concatenate(parts) if parts else np.empty(0, np.int64)
