"""The compiled walk that finds which rows have the same key."""

import numpy as np

from penstock.events.compiled import Hashes, Number, Numbers, inlined, kernel
from penstock.streams.state.key_loops import Keys

_32 = np.uint64(32)
_GROUP = np.uint64(0xFFFFFFFF)
_EMPTY = np.uint64(0)


@inlined
def _same(keys: Keys, i: Number, j: Number) -> bool:
    if keys.nulls[np.uint64(i)] != keys.nulls[np.uint64(j)]:
        return False
    for word in range(keys.width):
        if (
            keys.words[np.uint64(i * keys.width + word)]
            != keys.words[np.uint64(j * keys.width + word)]
        ):
            return False
    if keys.tail:
        size = keys.sizes[np.uint64(i)]
        if keys.sizes[np.uint64(j)] != size:
            return False
        a, b = keys.starts[np.uint64(i)], keys.starts[np.uint64(j)]
        for byte in range(size):
            if keys.data[np.uint64(a + byte)] != keys.data[np.uint64(b + byte)]:
                return False
    return True


@kernel
def group_keys(keys: Keys, hashes: Hashes, table: Hashes, groups: Numbers, firsts: Numbers) -> int:
    """The group of each key, numbered in the order in which they first come; returns how many.

    `table` is empty, of a size that is a power of two and more than there are keys. An entry is the
    upper half of a hash above the group plus one. `firsts` is given the first key of each group.
    """
    mask = table.shape[0] - 1
    count = 0
    for i in range(hashes.shape[0]):
        fragment = hashes[np.uint64(i)] >> _32
        slot = np.int64(fragment) & mask
        while True:
            entry = table[np.uint64(slot)]
            if entry == _EMPTY:
                table[np.uint64(slot)] = (fragment << _32) | np.uint64(count + 1)
                firsts[np.uint64(count)] = i
                groups[np.uint64(i)] = count
                count += 1
                break
            if entry >> _32 == fragment:
                group = np.int64(entry & _GROUP) - 1
                if _same(keys, i, firsts[np.uint64(group)]):
                    groups[np.uint64(i)] = group
                    break
            slot = (slot + 1) & mask
    return count


@kernel
def sort_by_group(groups: Numbers, ends: Numbers, order: Numbers) -> None:
    """Puts the rows into the order of their groups, those of a group as they come.

    `ends` has, for each group, where it begins in that order, and is left with where it ends.
    """
    for i in range(groups.shape[0]):
        group = np.uint64(groups[np.uint64(i)])
        order[np.uint64(ends[group])] = i
        ends[group] += 1
