"""Keeps the views of an app up to date: follows their topics, and applies what is committed."""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock import clock
from penstock.errors import PenstockError
from penstock.serve.catalog import Kept
from penstock.serve.changelog import Changelog, Cut, Offsets, ViewSource
from penstock.serve.store import ViewStore

logger = logging.getLogger(__name__)

_LOOK_EVERY = 0.05
_TRY_AGAIN = 5.0

Goal = Callable[[str], Offsets | None]
"""Of a view that is built anew: the offsets in its new topic at which it is whole, None as long as
nobody knows."""


@dataclass
class _Followed:
    changelog: Changelog
    kept: Kept
    goal: Callable[[], Offsets | None]
    refused: int = 0


class Projector:
    """Used by one thread at a time; `start` gives it one of its own.

    Views whose code stayed the same go on where they were, after a crash too. One that is built
    anew, in a new generation of its node, is shown when it has reached its goal.
    """

    def __init__(self, path: Path, sources: Iterable[ViewSource], goal: Goal) -> None:
        """Removes the views that are no longer declared. Raises TopicNotFound, StorageFailed."""
        self._opened = ExitStack()
        self._store = ViewStore(path)
        self._opened.callback(self._store.close)
        self._goal = goal
        sources = list(sources)
        self._store.forget_others({each.name for each in sources})
        self._followed = [self._follow(each) for each in sources]
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error = ""
        """What keeps it from going on, "" when nothing does."""

    def _follow(self, source: ViewSource) -> _Followed:
        changelog = Changelog(source)
        self._opened.callback(changelog.close)
        kept = self._store.open(source, changelog.identity, changelog.starts())
        ends = changelog.ends()
        # Of the same topic in another form, all is whole that was there; of another topic, its
        # node has yet to say.
        is_same = any(
            other.is_current and other.topic == kept.topic for other in self._store.tables()
        )
        goal = (lambda: ends) if is_same else (lambda: self._goal(source.name))
        return _Followed(changelog, kept, goal)

    def step(self) -> bool:
        """Applies what is there of each view, up to a bound; false when there was nothing new.

        What is wrong with one is raised when all others had their turn.
        """
        has_moved, errors = False, []
        for each in self._followed:
            try:
                has_moved |= self._bring_forward(each)
            except PenstockError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return has_moved

    def _bring_forward(self, view: _Followed) -> bool:
        kept, changelog = view.kept, view.changelog
        cut = changelog.cut(kept.offsets, kept.batch)
        if cut is not None:
            rows = changelog.rows(kept.offsets, cut)
            done_ms = _done_ms(view, cut)
            view.kept = self._store.apply(kept, changelog.source, cut, rows, done_ms)
            if changelog.refused > view.refused:
                logger.warning(
                    "view %s: %s records of its topic are no rows of it, and are left out",
                    kept.name,
                    f"{changelog.refused - view.refused:,}",
                )
                view.refused = changelog.refused
        if not view.kept.is_current and _has_reached(view.kept, view.goal()):
            self._switch(view)
        return cut is not None

    def _switch(self, view: _Followed) -> None:
        view.kept = self._store.switch(view.kept)
        logger.info("view %s was built anew, and is shown from now on", view.kept.name)

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
            pause = _LOOK_EVERY
            try:
                while self.step() and not self._stop.is_set():
                    pass
                self.error = ""
            except Exception as error:  # whatever it is: nobody else would notice
                if self.error != str(error):
                    trace = None if isinstance(error, PenstockError) else error
                    logger.error("the views are not brought up to date: %s", error, exc_info=trace)
                self.error = str(error) or type(error).__name__
                pause = _TRY_AGAIN
            self._stop.wait(pause)

    def finish(self) -> None:
        """Applies all that is committed, and goes on by itself no more."""
        if self._thread is not None:
            self._stop.set()
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


def _done_ms(view: _Followed, cut: Cut) -> dict[int, int]:
    """When each batch of the cut was done, never before the one before it."""
    source = view.changelog.source
    begins = dict(view.kept.offsets)
    first: dict[int, tuple[int, int]] = {}  # where each batch begins in one of the partitions
    for number, marks in cut.marks.items():
        for mark in marks:
            first.setdefault(mark.batch, (number, begins.get(number, 0)))
            begins[number] = mark.end
    wanted = sorted(first) if source.versions_ms is not None else [cut.batch]
    done: dict[int, int] = {}
    before = view.kept.at_ms
    for batch in wanted:
        known = source.batches.committed_ms(batch) or view.changelog.appended_ms(*first[batch])
        before = done[batch] = max(before, known or clock.now_ms())
    return done


def _has_reached(kept: Kept, goal: Offsets | None) -> bool:
    return goal is not None and all(kept.offsets.get(n, 0) >= end for n, end in goal.items())
