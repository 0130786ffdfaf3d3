"""Versions of the rows of a table: which one was valid at a time, and which nobody asks for."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Mask, Numbers, frozen
from penstock.streams.algebra.changes import TIME
from penstock.streams.algebra.joins.sides import PLACE, RIGHT, ROW
from penstock.streams.algebra.joins.version_loops import find_versions
from penstock.streams.algebra.rows.groups import keys_and
from penstock.streams.algebra.rows.order import order_words
from penstock.streams.algebra.rows.own_columns import DUE
from penstock.streams.state import BucketState, fixed_width

NONE = -1
FOREVER = np.iinfo(np.int64).max


class Versions(NamedTuple):
    """Of some keys, by number: in the order of keys, times, and places in the log."""

    ids: Numbers
    times: Numbers
    rows: Numbers  # of state
    are_new: Mask
    are_there: Mask  # a version may be that there is no row

    def at(self, ids: Numbers, times: Numbers, *, known: Mask | None = None) -> Numbers:
        """The version of each of these keys at these times, NONE where there is none.

        `known` says which versions are taken into account.
        """
        kept = np.arange(len(self.ids)) if known is None else np.flatnonzero(known)
        numbers = np.arange(int(ids.max(initial=NONE)) + 2)
        starts = np.searchsorted(self.ids[kept], numbers)
        found = np.empty(len(ids), np.int64)
        find_versions(frozen(starts), frozen(self.times[kept]), frozen(ids), frozen(times), found)
        return np.where(found >= 0, kept[found] if len(kept) else NONE, NONE)

    def ends(self) -> Numbers:
        """The time from which nobody asks for each, FOREVER for the last of a key.

        That one is kept even when it says that there is no row: an older one may still come.
        """
        ends = np.full(len(self.ids), FOREVER)
        followed = np.flatnonzero(self.ids[1:] == self.ids[:-1])
        ends[followed] = self.times[followed + 1]
        return ends


def versions_of(state: BucketState, keys: list[pa.Array], count: int) -> Versions:
    """All versions of these keys."""
    found = list(state.members(keys_and(keys, count, RIGHT)))
    if not found:
        nothing = np.empty(0, np.int64)
        none = np.empty(0, np.bool_)
        return Versions(nothing, nothing, nothing, none, none)
    ids, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    about = state.take_keys(rows)
    times = fixed_width.numbers(about.column(TIME))
    places = fixed_width.numbers(about.column(PLACE))
    if not places.any():  # nobody knows which came last: any order will do that lasts
        places = order_words(about.column(ROW).fill_null(b""))[:, 0]
    order = np.lexsort((places, times, ids))
    there = fixed_width.validity(about.column(ROW))
    rows = rows[order]
    return Versions(ids[order], times[order], rows, state.is_new(rows), there[order])


def let_go(state: BucketState, versions: Versions, now: int, correct_for: int) -> None:
    """Of versions that nobody asks for, from the clock less so much on; the others fall due when
    they are such too."""
    ends = versions.ends()
    gone = ends <= now - correct_for
    ending = np.flatnonzero(~gone & (ends < FOREVER))
    dues = ends[ending] + correct_for
    told = state.take_values(versions.rows[ending]).column(DUE)
    news = ~fixed_width.validity(told) | (fixed_width.numbers(told) != dues)
    state.put(versions.rows[ending[news]], pa.record_batch({DUE: pa.array(dues[news])}))
    state.remove(versions.rows[gone])
