"""The hash of keys, which is the same in every process, on every host, in every release.

State is kept by it: another hash would look for a key in another bucket.
"""

import numpy as np

from penstock.streams.state.compiled import Bytes, Hashes, Numbers, inlined, kernel

_SEED = np.uint64(0x243F6A8885A308D3)  # digits of pi: nothing up the sleeve
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
    """Every bit of the state reaches every bit of the hash; no two states have the same one."""
    mixed = (state ^ (state >> _30)) * _MIX_1
    mixed = (mixed ^ (mixed >> _27)) * _MIX_2
    return mixed ^ (mixed >> _31)


@kernel
def hash_keys(
    words: Numbers,
    width: int,
    nulls: Bytes,
    data: Bytes,
    starts: Numbers,
    sizes: Numbers,
    hashes: Hashes,
) -> bool:
    """Hashes keys of `width` words and, unless `sizes` is empty, a tail of bytes.

    Returns False at a tail that does not lie inside the data.
    """
    tail = sizes.shape[0] > 0
    for i in range(hashes.shape[0]):
        state = _SEED + np.uint64(nulls[np.uint64(i)])
        for j in range(width):
            state = _absorb(state, np.uint64(words[np.uint64(i * width + j)]))
        if tail:
            position = starts[np.uint64(i)]
            size = sizes[np.uint64(i)]
            if size < 0 or position < 0 or position > data.shape[0] - size:
                return False
            end = position + size
            state = _absorb(state, np.uint64(size))
            while end - position >= 8:
                word = np.uint64(data[np.uint64(position)])
                for byte in range(1, 8):
                    shift = np.uint64(8 * byte)
                    word |= np.uint64(data[np.uint64(position + byte)]) << shift
                state = _absorb(state, word)
                position += 8
            if position < end:
                word = np.uint64(0)
                for byte in range(end - position):
                    shift = np.uint64(8 * byte)
                    word |= np.uint64(data[np.uint64(position + byte)]) << shift
                state = _absorb(state, word)
        hashes[np.uint64(i)] = _finish(state)
    return True
