"""The compiled walk of rows through the blocks of a Bloom filter."""

import numpy as np

from penstock.events.compiled import Hashes, Mask, Numbers, inlined, kernel

WORDS = 8  # of a block
_INDEX_BITS = 9  # which of the 512 bits of a block
_INDEXES = 7  # in a word of 64 bits
_INDEX = np.uint64((1 << _INDEX_BITS) - 1)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_6, _27, _30, _31 = np.uint64(6), np.uint64(27), np.uint64(30), np.uint64(31)
_ONE, _63 = np.uint64(1), np.uint64(63)


@inlined
def _next(word: np.uint64) -> np.uint64:
    """Another word that has nothing to do with this one, as SplitMix64 makes them."""
    mixed = word + _ODD
    mixed = (mixed ^ (mixed >> _30)) * _MIX_1
    mixed = (mixed ^ (mixed >> _27)) * _MIX_2
    return mixed ^ (mixed >> _31)


@kernel
def add_in_order(
    order: Numbers, hashes: Hashes, blocks: Numbers, bits: int, filters: Hashes, seen: Mask
) -> None:
    """Puts each row's hash into its block and says whether it was there, row by row in this order.

    `blocks` has the number of each row's block among the filters.
    """
    for i in range(order.shape[0]):
        row = np.uint64(order[np.uint64(i)])
        first = blocks[row] * WORDS
        word = hashes[row]
        are_set = True
        for bit in range(bits):
            if bit % _INDEXES == 0:
                word = _next(word)
            index = (word >> np.uint64(bit % _INDEXES * _INDEX_BITS)) & _INDEX
            place = np.uint64(first) + (index >> _6)
            mask = _ONE << (index & _63)
            if filters[place] & mask == 0:
                are_set = False
                filters[place] |= mask
        seen[row] = are_set
