"""How many partners the rows of a join have, where that decides what comes out."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.events.compiled import Numbers
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.joins.changed import Changed
from penstock.streams.algebra.rows.groups import each_once
from penstock.streams.state import BucketState

MATCHES = "(matches)"  # what the weights of a row's partners add up to

Candidates = Iterator[tuple[Numbers, Numbers]]


class Rows(NamedTuple):
    """Rows of state, and of each its weight and its matches, before the step and now."""

    places: Numbers
    weights_before: Numbers
    weights: Numbers
    matches_before: Numbers
    matches: Numbers


class Touched:
    """The rows that a step changes, or the partners of, in the order in which they are told."""

    def __init__(self) -> None:
        self._places: list[Numbers] = []
        self._gained: list[Numbers] = []  # matches
        self._changed: Changed | None = None

    def by(self, changed: Changed) -> None:
        self._changed = changed

    def counted(
        self, state: BucketState, changed: Changed, own: Numbers, candidates: Candidates
    ) -> Candidates:
        """The same candidates, of which each is a match of one of `own`, and that one of it."""
        for which, places in candidates:
            here, there = own[which], changed.at(state, places)
            # Of a row that is new nothing was counted before.
            known = np.where(changed.are_new[here], 0, there.before)
            self._places += [changed.places[here], places[~there.are_changed]]
            mine = changed.after[here] - changed.before[here]
            self._gained += [there.after - known, mine[~there.are_changed]]
            yield which, places

    def rows(self, state: BucketState, due: Numbers) -> Rows:
        """All of them, and those that are due; their matches are brought up to date."""
        own = np.empty(0, np.int64) if self._changed is None else self._changed.places
        places = each_once(own, due, *self._places)
        weights = state.fixed(WEIGHT)[places]
        weights_before = weights.copy()
        if self._changed is not None:
            weights_before[np.searchsorted(places, own)] = self._changed.before
        matches_before = state.fixed(MATCHES)[places]
        matches = matches_before.copy()
        if self._places:
            told = np.searchsorted(places, np.concatenate(self._places))
            np.add.at(matches, told, np.concatenate(self._gained))
            state.touch(places)
            state.fixed(MATCHES)[places] = matches
        return Rows(places, weights_before, weights, matches_before, matches)
