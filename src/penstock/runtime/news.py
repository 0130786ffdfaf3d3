"""Whether the topics of a query have grown, and sleeping until they do."""

from collections.abc import Mapping
from pathlib import Path

from penstock.log.file_events import FileEvents
from penstock.streams.source.offsets import SourceOffset
from penstock.streams.source.topic import SourceTopic
from penstock.streams.spark.blame import blame


class News:
    """Used by one thread, but for `wake`.

    Topics whose files are on this host tell of what is appended, and a query that waits for it
    costs nothing. Those that are read over the wire have to be looked at.
    """

    def __init__(self, topics: Mapping[str, SourceTopic]) -> None:
        """`topics` by the name of the source that reads each."""
        self._topics = topics
        self._events = FileEvents()
        self._files: list[Path] = []
        self._are_watched = False

    def has_come(self, offsets: Mapping[str, SourceOffset]) -> bool:
        """Whether there is anything after these offsets."""
        for name, offset in offsets.items():
            topic = self._topics[name]
            with blame("source", name):
                for number in range(topic.partitions()):
                    if topic.bounds(number).end > offset.next.get(number, 0):
                        return True
        return False

    def wait(self, seconds: float, *, look_every: float) -> bool:
        """Returns when a topic may have grown and on `wake`, and false when the time is over:
        `look_every` where there are topics that have to be looked at. The first call returns at
        once."""
        files, is_told = self._changed_files()
        if files != self._files or not self._are_watched:
            self._files = files
            self._are_watched = self._events.watch(files)
            if self._are_watched:
                return True  # what came before they were watched is found by looking
        longest = seconds if is_told and self._are_watched else min(seconds, look_every)
        return self._events.wait(longest)

    def _changed_files(self) -> tuple[list[Path], bool]:
        """Those of all topics, and whether each topic has some."""
        found, is_told = [], True
        for name, topic in self._topics.items():
            with blame("source", name):
                files = topic.changed_files()
            found += files
            is_told &= bool(files)
        return found, is_told

    def wake(self) -> None:
        """Ends the present wait, or the next one. Thread-safe, also after `close`."""
        self._events.wake()

    def close(self) -> None:
        self._events.close()
