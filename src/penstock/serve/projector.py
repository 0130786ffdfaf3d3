"""Keeps the views of an app up to date: follows their topics, and applies what is committed."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import PenstockError
from penstock.serve.changelog import Changelog, Offsets, ViewSource
from penstock.serve.group import Followed, Group, all_of
from penstock.serve.offers import Published
from penstock.serve.store import ViewStore

logger = logging.getLogger(__name__)

_LOOK_EVERY = 5.0  # seconds, for what nobody has told
_TRY_AGAIN = 5.0

Goal = Callable[[str], Offsets | None]
"""Of a view that is built anew: the offsets in its new topic at which it is whole, None as long as
nobody knows."""


class Projector:
    """Used by one thread at a time, but for `wake` and `offer`; `start` gives it one of its own.

    Views of one group are brought forward together. Views whose code stayed the same go on where
    they were, after a crash too. One that is built anew, in a new generation of its node, is shown
    when it has reached its goal, and one that is new in a group when it is where the others are.
    """

    def __init__(self, path: Path, sources: Iterable[ViewSource], goal: Goal) -> None:
        """Removes the views that are no longer declared. Raises TopicNotFound, StorageFailed."""
        self._opened = ExitStack()
        self._store = ViewStore(path)
        self._opened.callback(self._store.close)
        self._goal = goal
        sources = list(sources)
        self._store.forget_others({each.name for each in sources})
        members: dict[str, list[Followed]] = {}
        for each in sources:
            name = f"group {each.group}" if each.group else f"view {each.name}"
            members.setdefault(name, []).append(self._follow(each))
        self._groups = {name: Group(self._store, views) for name, views in members.items()}
        self._stop = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self.error = ""
        """What keeps it from going on, "" when nothing does."""

    def _follow(self, source: ViewSource) -> Followed:
        changelog = Changelog(source)
        self._opened.callback(changelog.close)
        kept = self._store.open(source, changelog.identity, changelog.starts())
        shown = [t for t in self._store.tables() if t.is_current and t.name == source.name]
        if not shown:  # nobody misses anything as long as it is not whole
            return Followed(changelog, kept, dict)
        if shown[0].topic == kept.topic:  # in another form: all is whole that was there
            ends = changelog.ends()
            return Followed(changelog, kept, lambda: ends)
        return Followed(changelog, kept, lambda: self._goal(source.name))

    def wake(self) -> None:
        """Tells that a batch was committed. Thread-safe."""
        self._woken.set()

    def offer(self, group: str, batch: int, views: Mapping[str, Published]) -> None:
        """Hands over all that a batch has appended to the topics of a group's views, after that and
        before it is committed. Thread-safe; the rows must not change any more."""
        if found := self._groups.get(f"group {group}"):
            found.offer(batch, views)

    def step(self) -> bool:
        """Applies what is there of each group, up to a bound; false when there was nothing new.

        What is wrong with one is raised when all others had their turn.
        """
        return all_of(group.step for group in self._groups.values())

    def catch_up(self) -> None:
        """Applies all that is committed."""
        while self.step():
            pass

    def start(self) -> None:
        """Goes on by itself until `close`. What fails is told in the log and tried again."""
        self._thread = threading.Thread(target=self._run, name="penstock-views", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._woken.clear()  # before it looks: what is committed meanwhile wakes it again
            try:
                self._keep_up()
                self.error = ""
            except Exception as error:  # whatever it is: nobody else would notice
                if self.error != str(error):
                    trace = None if isinstance(error, PenstockError) else error
                    logger.error("the views are not brought up to date: %s", error, exc_info=trace)
                self.error = str(error) or type(error).__name__
                self._stop.wait(_TRY_AGAIN)
            else:
                self._woken.wait(_LOOK_EVERY)

    def _keep_up(self) -> None:
        while self.step() and not self._stop.is_set():
            if not any(group.is_behind for group in self._groups.values()):
                break  # another look at all topics would find nothing

    def finish(self) -> None:
        """Applies all that is committed, and goes on by itself no more."""
        if self._thread is not None:
            self._stop.set()
            self._woken.set()
            self._thread.join()
            self._thread = None
        self.catch_up()

    def close(self) -> None:
        """What is committed by now is applied first, if it went on by itself and can."""
        if self._thread is not None:
            try:
                self.finish()
            except PenstockError as error:
                logger.warning("the views are behind their topics: %s", error)
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
