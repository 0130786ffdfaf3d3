"""Views that move together: all are brought to the same batch in one transaction.

A view that is not with the others yet, as it is built anew or has just been declared, follows its
topic on its own. It joins them in the transaction that brings it to their batch, and is not shown
before.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from penstock import clock
from penstock.errors import PenstockError
from penstock.serve.catalog import Kept
from penstock.serve.changelog import Changelog, Cut, Offsets, last_at_once
from penstock.serve.offers import Offer, Offers, Published
from penstock.serve.store import Move, ViewStore

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Followed:
    """A view's topic, and the table that follows it. `goal` says at which offsets a table that is
    not shown is whole, None as long as nobody knows."""

    changelog: Changelog
    kept: Kept
    goal: Callable[[], Offsets | None]

    def stay(self, batch: int) -> Move:
        """To a batch that changes nothing in it."""
        return Move(self.kept, self.changelog.source, Cut(batch, self.kept.offsets, {}))

    def move(self, cut: Cut) -> Move:
        rows = self.changelog.rows(self.kept.offsets, cut)
        return Move(self.kept, self.changelog.source, cut, rows)

    def is_whole_at(self, offsets: Offsets) -> bool:
        if self.kept.is_current:
            return True
        goal = self.goal()
        return goal is not None and all(offsets.get(n, 0) >= end for n, end in goal.items())


class Group:
    """Used by one thread at a time, but for `offer`."""

    def __init__(self, store: ViewStore, views: Sequence[Followed]) -> None:
        """The views have the same `batches`. Where none is shown yet, those that have nothing to
        show instead are shown at once."""
        self._store = store
        self._views = views
        self._batches = views[0].changelog.source.batches
        self._offers = Offers()
        self._misfits: set[str] = set()  # views whose rows were offered in vain, and it was told
        self._committed = -1
        if not any(view.kept.is_current for view in views):
            shown = {kept.name for kept in store.tables() if kept.is_current}
            fresh = [view for view in views if view.kept.name not in shown]
            for view, kept in zip(fresh, store.switch(v.kept for v in fresh), strict=True):
                view.kept = kept

    @property
    def is_behind(self) -> bool:
        """Whether another step may find more, though nothing was committed since the last."""
        together, batch = self._together(self._committed)
        return len(together) < len(self._views) or batch < self._committed

    def offer(self, batch: int, views: Mapping[str, Published]) -> None:
        for view in self._views:
            name = view.kept.name
            if name not in views or views[name].fits(view.changelog.source):
                continue
            if name not in self._misfits:
                self._misfits.add(name)
                logger.warning(
                    "view %s: rows of other columns were offered; its topic is read", name
                )
            return
        self._offers.add(Offer(batch, views))

    def step(self) -> bool:
        """Applies what is there, up to a bound; false when there was nothing new. What is wrong
        with a view that is not with the others is raised when these had their turn."""
        self._committed = self._batches.committed  # asked first: all of it is in the topics
        together = set(map(id, self._together(self._committed)[0]))
        others = [view for view in self._views if id(view) not in together]
        return all_of([self._advance, *(partial(self._approach, view) for view in others)])

    def _together(self, committed: int) -> tuple[list[Followed], int]:
        """The views that are shown at the same batch, and that batch: -1 before the first.

        A batch that is not committed is one of another count, from which the views go on.
        """
        shown = [view for view in self._views if view.kept.is_current]
        batch = max((min(view.kept.batch, committed) for view in shown), default=-1)
        return [view for view in shown if view.kept.batch >= batch], batch

    def _advance(self) -> bool:
        together, batch = self._together(self._committed)
        if not together:
            return False
        moves = self._offered(together, batch) or self._read(together)
        if not moves:
            return False
        self._apply(together, moves)
        return True

    def _offered(self, together: Sequence[Followed], batch: int) -> list[Move] | None:
        """To the next batch, by the rows that were handed over; None if these do not lead there."""
        if batch >= self._committed or (offer := self._offers.take(batch + 1)) is None:
            return None
        moves = []
        for view in together:
            kept, published = view.kept, offer.views.get(view.kept.name)
            if published is None:
                moves.append(view.stay(offer.batch))
                continue
            cut = published.cut(offer.batch, kept)
            if cut is None or kept.batch != batch:
                return None
            changes = published.changes(offer.batch)
            moves.append(Move(kept, view.changelog.source, cut, changes))
        return moves

    def _read(self, together: Sequence[Followed]) -> list[Move]:
        """To the last batch that is committed, or an earlier one where there is much to apply; no
        moves where all are there."""
        found, last = [], self._committed
        for view in together:
            marks, last = view.changelog.marks(view.kept.offsets, view.kept.batch, last)
            found.append((view.kept.offsets, marks))
        last = last_at_once(found, last)
        cuts = [Cut.after(last, begins, marks) for begins, marks in found]
        if not any(cut.marks for cut in cuts):
            batches = {view.kept.batch for view in together}
            if last < 0 or (len(batches) == 1 and last <= max(batches)):
                return []
        return [
            view.move(cut) if cut.marks else view.stay(last)
            for view, cut in zip(together, cuts, strict=True)
        ]

    def _approach(self, view: Followed) -> bool:
        """Brings a view nearer to the others. It joins them when it can be where they are."""
        changelog, kept = view.changelog, view.kept
        together, batch = self._together(self._committed)
        committed = changelog.source.batches.committed
        wanted = batch if together else committed
        if min(kept.batch, committed) > wanted:
            return False  # the others have still much to apply until they are there
        marks, last = changelog.marks(kept.offsets, kept.batch, min(wanted, committed))
        last = last_at_once([(kept.offsets, marks)], last)
        cut = Cut.after(last, kept.offsets, marks)
        is_there = last >= wanted
        joins = is_there and view.is_whole_at(cut.ends)
        if not joins and not cut.marks:
            return False
        at_ms = max(each.kept.at_ms for each in together) if joins and together else None
        switch = joins and not kept.is_current
        self._apply([view], [view.move(cut)], at_ms=at_ms, switch=switch)
        return True

    def _apply(
        self,
        views: Sequence[Followed],
        moves: Sequence[Move],
        *,
        at_ms: int | None = None,
        switch: bool = False,
    ) -> None:
        done_ms = _done_ms(views, moves)
        at_ms = done_ms[moves[0].cut.batch] if at_ms is None else at_ms
        moved = self._store.apply(moves, at_ms, done_ms, switch=switch)
        for view, kept in zip(views, moved, strict=True):
            view.kept = kept
            if switch:
                logger.info("view %s was built anew, and is shown from now on", kept.name)
            if refused := view.changelog.refused:
                logger.warning(
                    "view %s: %s records of its topic are no rows of it, and are left out",
                    kept.name,
                    f"{refused:,}",
                )
                view.changelog.refused = 0


def _done_ms(views: Sequence[Followed], moves: Sequence[Move]) -> dict[int, int]:
    """When the batch was done to which these moves lead, and all in between where a view keeps
    versions: never before the one before it."""
    first: dict[int, tuple[Changelog, int, int]] = {}  # a record of each batch
    for view, move in zip(views, moves, strict=True):
        for number, marks in move.cut.marks.items():
            begin = move.kept.offsets.get(number, 0)
            for mark in marks:
                first.setdefault(mark.batch, (view.changelog, number, begin))
                begin = mark.end
    wanted = {moves[0].cut.batch}
    if any(move.kept.versions_ms is not None for move in moves):
        wanted.update(first)
    batches = moves[0].source.batches
    done: dict[int, int] = {}
    before = max(move.kept.at_ms for move in moves)
    for batch in sorted(wanted):
        if batch >= 0:
            known = batches.committed_ms(batch)
            if known is None and batch in first:
                changelog, number, offset = first[batch]
                known = changelog.appended_ms(number, offset)
            before = max(before, known or clock.now_ms())
        done[batch] = before
    return done


def all_of(steps: Iterable[Callable[[], bool]]) -> bool:
    """Takes all steps, and says whether one of them has moved anything. What goes wrong with one is
    raised when all others had their turn."""
    has_moved, errors = False, []
    for step in steps:
        try:
            has_moved |= step()
        except PenstockError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return has_moved
