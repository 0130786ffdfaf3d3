"""Many ranges of a sequence of parts, each merged into one, though they overlap.

What no range begins or ends in is merged first. Then blocks of two, four, eight and so on are made
of what is left, each from two of half its length, and a range is merged from those whose lengths
add up to its own. So the cost follows the length of the sequence and the number of ranges, times
the logarithm of the longest.

In which order a range is merged so depends on the others. Where that shows in the results, each is
merged by itself, from the first to the last, and the cost follows the lengths of all.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.events.compiled import Numbers, frozen
from penstock.streams.algebra.aggregates.summary import Summary
from penstock.streams.algebra.folds.fold import Parts
from penstock.streams.algebra.rows.group_loops import sort_by_group
from penstock.streams.algebra.rows.groups import Groups, counted_out, grouped

_AT_ONCE = 1 << 20


class Ranges(NamedTuple):
    """From `first` to `last`, which is included; none is empty."""

    first: Numbers
    last: Numbers

    def packed(self, length: int) -> tuple[Numbers, "Ranges"]:
        """What of a sequence so long is in a range, and the ranges of that alone."""
        steps = np.zeros(length + 1, np.int64)
        np.add.at(steps, self.first, 1)
        np.add.at(steps, self.last + 1, -1)
        used = np.cumsum(steps[:-1]) > 0
        number = np.cumsum(used) - 1
        return np.flatnonzero(used), Ranges(number[self.first], number[self.last])


def merge_ranges(summary: Summary, parts: Parts, ranges: Ranges, keys: pa.RecordBatch) -> Parts:
    """The parts of each range of a sequence, all of which is in one of them.

    `keys` says whose parts these are, should a merge fail. Nothing is merged that is not together
    in some range.
    """
    if not summary.order_free:
        return _each_by_itself(summary, parts, ranges, keys)
    parts, ranges, keys = _joined(summary, parts, ranges, keys)
    last = keys.take(pa.array(ranges.last))
    if (ranges.first == ranges.last).all():
        return _taken(parts, ranges.last)
    ids: list[Numbers] = []
    blocks: list[Parts] = []
    for chosen, rows, level in _blocks(summary, parts, ranges, keys):
        ids.append(chosen)
        blocks.append(_taken(level, rows))
    every = np.concatenate(ids)
    ends = np.cumsum(np.bincount(every))
    order = np.empty(len(every), np.int64)
    sort_by_group(frozen(every), np.concatenate([[0], ends[:-1]]), order)
    gathered = [pa.concat_arrays(each) for each in zip(*blocks, strict=True)]
    return summary.merge(_taken(gathered, order), grouped(every[order], last), None)


def _each_by_itself(summary: Summary, parts: Parts, ranges: Ranges, keys: pa.RecordBatch) -> Parts:
    lengths = ranges.last - ranges.first + 1
    cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // _AT_ONCE)) + 1
    pieces: list[Parts] = []
    for first, end in pairwise([0, *cuts.tolist(), len(lengths)]):
        ids, number = counted_out(lengths[first:end])
        rows = ranges.first[first:end][ids] + number
        groups = grouped(ids, keys.take(pa.array(ranges.last[first:end])))
        pieces.append(summary.merge(_taken(parts, rows), groups, None))
    return [pa.concat_arrays(each) for each in zip(*pieces, strict=True)]


def _joined(
    summary: Summary, parts: Parts, ranges: Ranges, keys: pa.RecordBatch
) -> tuple[Parts, Ranges, pa.RecordBatch]:
    """The same with what is in the same ranges merged into one."""
    cuts = np.zeros(keys.num_rows + 1, np.bool_)
    cuts[ranges.first] = cuts[ranges.last + 1] = True
    runs = np.cumsum(cuts[:-1]) - 1
    if runs[-1] + 1 == len(runs):
        return parts, ranges, keys
    keys = keys.take(pa.array(np.flatnonzero(cuts[:-1])))
    parts = summary.merge(parts, grouped(runs, keys), None)
    return parts, Ranges(runs[ranges.first], runs[ranges.last]), keys


def _blocks(
    summary: Summary, parts: Parts, ranges: Ranges, keys: pa.RecordBatch
) -> Iterator[tuple[Numbers, Numbers, Parts]]:
    """For each length of blocks: which ranges have one, its row, and the parts of these rows."""
    lengths = ranges.last - ranges.first + 1
    ends = ranges.last.copy()
    levels = range(int(lengths.max()).bit_length())
    chosen = [np.flatnonzero(lengths >> level & 1) for level in levels]
    used: list[Numbers] = []
    for level in levels:
        used.append(ends[chosen[level]])
        ends[chosen[level]] -= 1 << level
    # A block is known by where it ends. Only those are made that are used, or that others need.
    wanted = np.zeros(keys.num_rows, np.bool_)
    made: list[Numbers] = []
    for level in reversed(levels):
        wanted[used[level]] = True
        made.insert(0, np.flatnonzero(wanted))
        wanted[made[0] - (1 << level >> 1)] = True
    row = np.arange(keys.num_rows)
    for level in levels:
        if level:
            after = _taken(parts, row[made[level]])
            before = _taken(parts, row[made[level] - (1 << level >> 1)])
            each = frozen(np.arange(len(made[level])))
            groups = Groups(each, each, keys.take(pa.array(made[level])))
            parts = summary.merge(after, groups, before)
            row[made[level]] = each
        yield chosen[level], row[used[level]], parts


def _taken(parts: Parts, rows: Numbers) -> Parts:
    return [part.take(pa.array(rows)) for part in parts]
