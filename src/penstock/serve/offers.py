"""Rows that are handed to the projector directly, so that it need not read them from the topics.

The engine has the changed rows of a batch in hand when it publishes them. An offer only saves time:
one that does not follow exactly on what the tables have is left out, and the topics are read.
"""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.serve.catalog import Kept
from penstock.serve.changelog import Changes, Cut, Mark, ViewSource
from penstock.streams.source.spec import DELETED, METADATA

_MAX_ROWS = 200_000  # that are held, of all batches together
_MAX_OFFERS = 64


@dataclass(frozen=True)
class Published:
    """What one batch has appended to a view's topic.

    `rows` has the columns of the view, `_key` (binary) and `_deleted` (bool), and of each key the
    last change alone; None where there are none, as where only punctuation was appended. `offsets`
    are those of the records by partition, as Writer.append returns them: None where the batch was
    there already, so that nobody knows.
    """

    rows: pa.RecordBatch | None
    offsets: Mapping[int, range | None]

    def fits(self, source: ViewSource) -> bool:
        """Whether the rows have the columns of the view, of the same types."""
        if self.rows is None:
            return True
        types = {field.name: field.type for field in self.rows.schema}
        wanted = [*source.schema, METADATA["key"], DELETED]
        return all(types.get(field.name) == field.type for field in wanted)

    def cut(self, batch: int, kept: Kept) -> Cut | None:
        """Where this leads from what the table has. None when something may lie between, such as
        records that somebody has put there by hand."""
        marks = {}
        for number, appended in self.offsets.items():
            if appended is None or appended.start != kept.offsets.get(number, 0):
                return None
            marks[number] = [Mark(batch, appended.stop)]
        return Cut.after(batch, kept.offsets, marks)

    def changes(self, batch: int) -> list[Changes]:
        if self.rows is None or not self.rows.num_rows:
            return []
        return [Changes(self.rows, np.full(self.rows.num_rows, batch, np.int64))]


@dataclass(frozen=True)
class Offer:
    """All that a batch has appended, by view; a view that is not named has nothing new."""

    batch: int
    views: Mapping[str, Published]

    @property
    def size(self) -> int:
        return sum(each.rows.num_rows for each in self.views.values() if each.rows is not None)


class Offers:
    """Those of one group that may still be wanted, in the order of their batches. Thread-safe."""

    def __init__(self) -> None:
        self._held: deque[Offer] = deque()
        self._rows = 0
        self._lock = threading.Lock()

    def add(self, offer: Offer) -> None:
        """Held only as long as there are not too many rows: who is far behind reads topics."""
        with self._lock:
            while self._held and self._held[-1].batch >= offer.batch:  # a batch that is run again
                self._rows -= self._held.pop().size
            if self._rows + offer.size <= _MAX_ROWS and len(self._held) < _MAX_OFFERS:
                self._held.append(offer)
                self._rows += offer.size

    def take(self, batch: int) -> Offer | None:
        """That of this batch, if it is there; those before it are forgotten."""
        with self._lock:
            while self._held and self._held[0].batch <= batch:
                offer = self._held.popleft()
                self._rows -= offer.size
                if offer.batch == batch:
                    return offer
        return None
