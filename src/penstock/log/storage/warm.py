"""The indexes of closed segments that stay in memory, for those who read them."""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from penstock.log.storage.segment import Segment

WARM_INDEXES = 8


class WarmIndexes:
    """Bounds the memory that indexes take while somebody reads all segments of a partition."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: OrderedDict[int, Segment] = OrderedDict()

    def keep(self, segment: Segment) -> None:
        """This one was read just now; the one that nobody has read for longest may go."""
        with self._lock:
            self._segments[segment.base_offset] = segment
            self._segments.move_to_end(segment.base_offset)
            if len(self._segments) > WARM_INDEXES:
                self._segments.popitem(last=False)[1].drop_index()

    def forget(self, gone: Iterable[Segment]) -> None:
        with self._lock:
            for segment in gone:
                self._segments.pop(segment.base_offset, None)
