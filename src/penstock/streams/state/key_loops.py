"""Keys as kernels see them, and their hash.

The hash is the same in every process, on every host, in every release. State is kept by it: another
hash would look for a key in another bucket.
"""

from typing import NamedTuple

import numpy as np

from penstock.events.compiled import Bytes, Hashes, Numbers, inlined, kernel


class Keys(NamedTuple):
    """One key after the other: `width` words of each, and a tail of bytes when `tail` is set.

    Equal keys have equal words, nulls and tails, and others do not. The arrays are frozen.
    """

    words: Numbers
    nulls: Bytes  # a bit for each part of the key that is null
    data: Bytes
    starts: Numbers  # of the tails in the data
    sizes: Numbers
    width: int
    tail: bool


_SEED = np.uint64(0x243F6A8885A308D3)  # digits of pi
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@inlined
def _absorb(state: np.uint64, word: np.uint64) -> np.uint64:
    mixed = (state ^ word) * _ODD
    return mixed ^ (mixed >> _32)


@inlined
def _finish(state: np.uint64) -> np.uint64:
    """Every bit of the state reaches every bit of the hash, and no two states have the same one."""
    mixed = (state ^ (state >> _30)) * _MIX_1
    mixed = (mixed ^ (mixed >> _27)) * _MIX_2
    return mixed ^ (mixed >> _31)


@inlined
def load_word(data: Bytes, position: int, size: int) -> np.uint64:
    word = np.uint64(0)
    for byte in range(size):
        word |= np.uint64(data[np.uint64(position + byte)]) << np.uint64(8 * byte)
    return word


@kernel
def hash_each(keys: Keys, hashes: Hashes) -> bool:
    """Returns False at a tail that does not lie inside the data."""
    for i in range(hashes.shape[0]):
        state = _SEED + np.uint64(keys.nulls[np.uint64(i)])
        for j in range(keys.width):
            state = _absorb(state, np.uint64(keys.words[np.uint64(i * keys.width + j)]))
        if keys.tail:
            position = keys.starts[np.uint64(i)]
            size = keys.sizes[np.uint64(i)]
            if size < 0 or position < 0 or position > keys.data.shape[0] - size:
                return False
            end = position + size
            state = _absorb(state, np.uint64(size))
            while end - position >= 8:
                state = _absorb(state, load_word(keys.data, position, 8))
                position += 8
            if position < end:
                state = _absorb(state, load_word(keys.data, position, end - position))
        hashes[np.uint64(i)] = _finish(state)
    return True
