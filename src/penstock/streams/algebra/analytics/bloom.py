"""Whether the key of a row occurred before, about: a Bloom filter in blocks.

    kernel = BloomKernel("user", schema, time="at", error=0.01, expected=1_000_000)

A key sets a few bits, all in one block of 512, and counts as seen when all of them were set before.
So a key that was seen is never taken for new, and a new one for seen with a probability of at most
`error`, as long as no more than `expected` keys were put in; beyond that it grows, and `error_of`
tells how far. State has a row for each block that was touched, ten bits a key at an error of 1 %.

The answer cannot be corrected, so rows have to come in the order of event time, as `InOrderKernel`
gives them; a straggler is asked about when it comes.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InvalidInput, KernelError
from penstock.events.compiled import Hashes, frozen
from penstock.streams.algebra.analytics.bloom_loops import WORDS, add_in_order
from penstock.streams.algebra.analytics.seen import answers, seen_output
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.kernel import one_batch
from penstock.streams.algebra.rows.groups import group_rows
from penstock.streams.algebra.rows.whole import WholeRows
from penstock.streams.state import BucketState, StateSchema, fixed_width
from penstock.streams.state.keys import hashes_of, key_layout

_BLOCK, _HASH, _BITS = "(block)", "(hash)", "(bits)"
_BLOCK_BITS = WORDS * 64
_MOST_BITS = 16  # a key sets; more do not help, for any error that is allowed
_LEAST_ERROR, _HIGHEST_ERROR = 1e-6, 0.5
_MOST_KEYS = 10**10
_MARGIN = 0.95  # aimed at is a little less than the error, as chance moves it
_32 = np.uint64(32)


class BloomKernel:
    """Every row of the stream, its columns in their order, and `seen_before`; with `time`, the
    event time as `_time`. Of several rows of a new key in one batch only the first is new.
    """

    portable = True
    is_final = True

    def __init__(
        self,
        key: str | Sequence[str],
        schema: pa.Schema,
        time: str | None = None,
        *,
        error: float,
        expected: int,
    ) -> None:
        self._rows = WholeRows(key, schema, time)
        self.error = error
        self.expected = expected
        self.size = filter_size(error, expected)
        self._weighted = WEIGHT in schema.names
        self.keys = (_BLOCK,)
        self.needed = (*self._rows.needed, *([WEIGHT] if self._weighted else []))
        own = pa.schema([(_BLOCK, pa.int64())])
        self.state = StateSchema(own, pa.schema([(_BITS, pa.binary(_BLOCK_BITS // 8))]))
        given = [*self._rows.columns, *self._rows.times, *self._rows.place]
        self.packed = pa.schema([*own, (_HASH, pa.uint64()), *given])
        self.output = seen_output(self._rows)

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._weighted and (fixed_width.numbers(rows.column(WEIGHT)) != 1).any():
            raise KernelError(
                "a row was taken back, and a Bloom filter cannot forget it",
                hint="take the stream that the table was made from, or leave error= out",
            )
        packed = self._rows.pack(rows)
        keys = packed.select(self._rows.keys)
        hashes = hashes_of(key_layout(keys.schema).encode(keys))
        blocks = ((hashes >> _32) * np.uint64(self.size.blocks)) >> _32
        given = [packed.column(name) for name in self.packed.names[2:]]
        arrays = [pa.array(blocks.astype(np.int64)), pa.array(hashes), *given]
        return pa.RecordBatch.from_arrays(arrays, schema=self.packed)

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        rows = one_batch(packed)
        if rows is None:
            return
        groups = group_rows(rows.select(self.keys))
        places = state.find(groups.keys)
        known = places >= 0
        before = np.zeros((len(groups), WORDS), np.uint64)
        before[known] = _words(state.take_values(places[known]).column(_BITS))
        filters = before.copy()
        seen = np.empty(rows.num_rows, np.bool_)
        words = self._rows.order(rows)
        # Stable, so that rows with the same place stay as they are.
        order = np.lexsort(words.T[::-1]) if words.size else np.arange(rows.num_rows)
        add_in_order(
            frozen(order),
            frozen(fixed_width.numbers(rows.column(_HASH))),
            groups.ids,
            self.size.bits,
            filters.reshape(-1),
            seen,
        )
        changed = (filters != before).any(axis=1)
        places = state.find_or_add(groups.keys.filter(pa.array(changed)))
        content = filters[changed].view(np.uint8).reshape(-1, _BLOCK_BITS // 8)
        everywhere = np.ones(len(places), np.bool_)
        bits = fixed_width.from_numbers(self.state.values.field(_BITS).type, content, everywhere)
        state.put(places, pa.RecordBatch.from_arrays([bits], schema=self.state.values))
        yield from answers(self.output, rows, seen, 1)

    def error_of(self, state: Iterable[pa.RecordBatch]) -> float:
        """How likely a new key is taken for one that was seen, given the rows of all state.

        At more than `error`, there were more keys than expected.
        """
        share = 0.0
        for rows in state:
            counts = np.bitwise_count(_words(rows.column(_BITS))).sum(axis=1, dtype=np.int64)
            share += float(((counts / _BLOCK_BITS) ** self.size.bits).sum())
        return share / self.size.blocks

    def spec(self) -> dict[str, Any]:
        options = {"error": self.error, "expected": self.expected}
        return {"kernel": "bloom", **self._rows.spec(), **options}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "BloomKernel":
        options = {"error": spec["error"], "expected": spec["expected"]}
        return cls(**WholeRows.arguments(spec), **options)


def _words(bits: pa.Array) -> Hashes:
    return np.ascontiguousarray(fixed_width.numbers(bits)).view(np.uint64)


class FilterSize(NamedTuple):
    blocks: int
    bits: int  # that a key sets


def filter_size(error: float, expected: int) -> FilterSize:
    """The smallest filter that keeps to the error with so many keys."""
    if not _LEAST_ERROR <= error <= _HIGHEST_ERROR:
        raise InvalidInput(
            f"error={error} is no error of a Bloom filter",
            hint=f"from {_LEAST_ERROR} to {_HIGHEST_ERROR}; without, the answer is exact",
        )
    if not 1 <= expected <= _MOST_KEYS:
        raise InvalidInput(
            f"a Bloom filter cannot expect {expected:,} keys",
            hint=f"how many different ones there will be, at most {_MOST_KEYS:,}",
        )
    keys, bits = _most_keys(error * _MARGIN)
    return FilterSize(math.ceil(expected / keys), bits)


@lru_cache
def _most_keys(error: float) -> tuple[float, int]:
    """How many keys a block can have on average, and how many bits each sets for that."""
    best = 0.0, 0
    for bits in range(1, _MOST_BITS + 1):
        terms = _terms(bits)
        low, high = 0.0, float(_BLOCK_BITS)
        for _ in range(50):
            middle = (low + high) / 2
            if _error(middle, bits, terms) <= error:
                low = middle
            else:
                high = middle
        best = max(best, (low, bits))
    return best


def _terms(bits: int) -> NDArray[np.float64]:
    """Of so many bits, drawn at random, how many ways there are to choose 0, 1, 2 ... different
    ones, on average, with a changing sign."""
    different = np.zeros(bits + 1)
    different[0] = 1.0
    counts = np.arange(bits + 1)
    for _ in range(bits):
        hit = different * counts / _BLOCK_BITS
        missed = different - hit
        different = hit + np.append(0.0, missed[:-1])
    ways = [sum(p * math.comb(d, j) for d, p in enumerate(different)) for j in range(bits + 1)]
    terms: NDArray[np.float64] = np.array(ways) * (-1.0) ** counts
    return terms


def _error(keys: float, bits: int, terms: NDArray[np.float64]) -> float:
    """How likely all bits of a new key are set, with so many keys in a block on average.

    Blocks do not get the same number of keys each: it is distributed by Poisson, and with the
    average number the error would come out too low. That none of j bits is set by a key has the
    probability (1 - j/512)^bits, and, over all numbers of keys, exp(-keys (1 - that)); that all are
    set follows by inclusion and exclusion.
    """
    none_set = (1 - np.arange(bits + 1) / _BLOCK_BITS) ** bits
    return float(terms @ np.exp(-keys * (1 - none_set)))
