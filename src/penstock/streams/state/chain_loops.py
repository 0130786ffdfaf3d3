"""The compiled walks over chains: the rows of a group, one linked to the next.

A row has three links: the next row of its group, the one before it, and the group, each as a number
plus one; 0 is none, and a row whose group is 0 is in no chain. A group is a row of an arena of its
own, in which two words say which row is its first, plus one, and how many live ones it has. A row
that is removed stays in its chain until the step ends, with a mark at its group.

Compiled code checks no index by itself. Row numbers come from files, and are compared with what
there is before they are used, and no walk is longer than there are rows: the answer is then
DAMAGED.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.events.compiled import Numbers, inlined, kernel
from penstock.streams.state.index_loops import DAMAGED, LIVE

Links = NDArray[np.uint32]
LINKS = 3  # of a row
_NEXT, _BEFORE, _GROUP = 0, 1, 2
_REMOVED = np.uint32(1 << 31)  # the mark


class ChainTables(NamedTuple):
    """The links, and of the two arenas what they need, as long as nothing grows."""

    links: Links
    records: Numbers
    stride: int
    groups: Numbers  # the records of the groups' arena
    group_stride: int
    first_at: int  # words of a group
    count_at: int


@inlined
def _first(chains: ChainTables, group: np.int64) -> np.uint64:
    return np.uint64(group * chains.group_stride + chains.first_at)


@inlined
def _count(chains: ChainTables, group: np.int64) -> np.uint64:
    return np.uint64(group * chains.group_stride + chains.count_at)


@kernel
def count_in(chains: ChainTables, rows: Numbers, unlinked: Numbers) -> int:
    """Counts rows that had been removed in this step and are there again.

    Returns how many are in no chain, and where in `rows` they stand.
    """
    links, count = chains.links, 0
    for i in range(rows.shape[0]):
        at = np.uint64(rows[np.uint64(i)] * LINKS + _GROUP)
        group = links[at]
        if group == 0:
            unlinked[np.uint64(count)] = i
            count += 1
        elif group & _REMOVED:
            links[at] = group & ~_REMOVED
            chains.groups[_count(chains, np.int64(links[at]) - 1)] += 1
    return count


@kernel
def count_out(chains: ChainTables, rows: Numbers) -> None:
    """Rows that are removed no longer count."""
    for i in range(rows.shape[0]):
        at = np.uint64(rows[np.uint64(i)] * LINKS + _GROUP)
        group = chains.links[at]
        if group != 0 and not group & _REMOVED:
            chains.links[at] = group | _REMOVED
            chains.groups[_count(chains, np.int64(group) - 1)] -= 1


@kernel
def link_rows(chains: ChainTables, rows: Numbers, groups: Numbers) -> bool:
    """Puts each row that is in no chain to the front of that of its group."""
    links, most = chains.links, chains.links.shape[0] // LINKS
    for i in range(rows.shape[0]):
        row, group = rows[np.uint64(i)], groups[np.uint64(i)]
        at = row * LINKS
        if links[np.uint64(at + _GROUP)] != 0:  # the same row twice
            continue
        first = chains.groups[_first(chains, group)]
        if first < 0 or first > most:
            return False
        if first > 0:
            links[np.uint64((first - 1) * LINKS + _BEFORE)] = row + 1
        links[np.uint64(at + _NEXT)] = first
        links[np.uint64(at + _BEFORE)] = 0
        links[np.uint64(at + _GROUP)] = group + 1
        chains.groups[_first(chains, group)] = row + 1
        chains.groups[_count(chains, group)] += 1
    return True


@kernel
def unlink_rows(chains: ChainTables, rows: Numbers, emptied: Numbers) -> int:
    """Takes removed rows out of their chains.

    Returns how many groups have none left, or DAMAGED.
    """
    links, most = chains.links, chains.links.shape[0] // LINKS
    last_group = chains.groups.shape[0] // chains.group_stride
    empty = 0
    for i in range(rows.shape[0]):
        at = rows[np.uint64(i)] * LINKS
        after = np.int64(links[np.uint64(at + _NEXT)])
        before = np.int64(links[np.uint64(at + _BEFORE)])
        group = np.int64(links[np.uint64(at + _GROUP)] & ~_REMOVED) - 1
        if after > most or before > most or group < 0 or group >= last_group:
            return DAMAGED
        if after > 0:
            links[np.uint64((after - 1) * LINKS + _BEFORE)] = before
        if before > 0:
            links[np.uint64((before - 1) * LINKS + _NEXT)] = after
        else:
            chains.groups[_first(chains, group)] = after
        for j in range(LINKS):
            links[np.uint64(at + j)] = 0
        if chains.groups[_first(chains, group)] == 0:
            emptied[np.uint64(empty)] = group
            empty += 1
    return empty


@kernel
def walk_chains(
    chains: ChainTables, groups: Numbers, cursor: Numbers, which: Numbers, rows: Numbers
) -> int:
    """The live rows of each group, -1 for none, and which of the groups they are of.

    Goes on where the cursor stands, which is a number of a group, of a row of it plus one, or 0 for
    its first, and how many of its rows were passed, until `rows` is full or the cursor is behind
    the last group. Returns how many there are, or DAMAGED.
    """
    links, most = chains.links, chains.links.shape[0] // LINKS
    found = 0
    i, row, steps = cursor[0], cursor[1], cursor[2]
    while i < groups.shape[0] and found < rows.shape[0]:
        if row == 0:
            steps = 0
            group = groups[np.uint64(i)]
            row = chains.groups[_first(chains, group)] if group >= 0 else np.int64(0)
            if row < 0:
                return DAMAGED
        while row > 0 and found < rows.shape[0]:
            steps += 1
            if row > most or steps > most:
                return DAMAGED
            if chains.records[np.uint64((row - 1) * chains.stride)] & LIVE:
                which[np.uint64(found)] = i
                rows[np.uint64(found)] = row - 1
                found += 1
            row = np.int64(links[np.uint64((row - 1) * LINKS + _NEXT)])
        if row == 0:
            i += 1
    cursor[0], cursor[1], cursor[2] = i, row, steps
    return found
