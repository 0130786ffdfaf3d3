"""The compiled walks over a wheel, which has rows in the order of their due, as far as needed.

A time is eleven digits of six bits, the highest first; the sign is turned, so that times before
1970 come first. The wheel stands at a position. A row lies in the list of the highest digit in
which its due differs from the position, one list for each value of each digit, or in that of the
overdue when its due is not after the position. So the list follows from due and position alone, and
a position that moves on takes some lists over as they are, splits one, and leaves the others be: a
row changes its list at most as often as there are digits.

Lists are rings of nodes, which name each other by number. Node 0 is none, then come the lists
themselves, then the rows. A node is two numbers, the one before and the one after; 0, as in a row
never used, is in no list.

Compiled code checks no index by itself. Node numbers come from a file, and are compared with what
there is before they are used, and no walk is longer than there are rows: the answer is then
DAMAGED.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.events.compiled import Mask, Number, Numbers, inlined, kernel
from penstock.streams.state.index_loops import DAMAGED, LIVE, POSITION, USED

Nodes = NDArray[np.uint32]

OVERDUE = 1
_AHEAD = 32  # rows
_DIGITS = 2  # the first list of digits
_COUNT = 11  # of digits
_VALUES = 64  # of a digit
_BITS = np.uint64(6)
_DIGIT = np.uint64(_VALUES - 1)
_SIGN = np.uint64(1 << 63)
_NONE = np.uint64(0)
FIRST_ROW = _DIGITS + _COUNT * _VALUES


class WheelTables(NamedTuple):
    """The wheel, and of the arena it belongs to what it needs, as long as nothing grows."""

    nodes: Nodes
    records: Numbers
    head: Numbers
    stride: int
    due_at: int  # the word of a row that holds its due


@kernel
def empty_lists(nodes: Nodes) -> None:
    for each in range(OVERDUE, FIRST_ROW):
        nodes[np.uint64(2 * each)] = each
        nodes[np.uint64(2 * each + 1)] = each


@inlined
def _top_digit(differs: np.uint64) -> np.int64:
    """The number of the highest digit that is not 0, counted from the lowest."""
    top = np.int64(0)
    for number in range(1, _COUNT):  # without a branch, as none could be foreseen
        top += np.int64(differs >> (_BITS * np.uint64(number)) != _NONE)
    return top


@inlined
def _digit(time: Number, number: Number) -> np.int64:
    turned = np.uint64(time) ^ _SIGN
    return np.int64((turned >> (_BITS * np.uint64(number))) & _DIGIT)


@inlined
def _list_of(due: Number, position: Number) -> np.int64:
    if due <= position:
        return np.int64(OVERDUE)
    number = _top_digit(np.uint64(due) ^ np.uint64(position))
    return np.int64(_DIGITS + _VALUES * number + _digit(due, number))


@inlined
def _join(nodes: Nodes, before: Number, after: Number) -> None:
    nodes[np.uint64(2 * before + 1)] = after
    nodes[np.uint64(2 * after)] = before


@inlined
def _take_out(nodes: Nodes, node: Number) -> bool:
    before = np.int64(nodes[np.uint64(2 * node)])
    after = np.int64(nodes[np.uint64(2 * node + 1)])
    count = nodes.shape[0] // 2
    if before >= count or after >= count:
        return False
    _join(nodes, before, after)
    nodes[np.uint64(2 * node)] = 0
    nodes[np.uint64(2 * node + 1)] = 0
    return True


@inlined
def _append(nodes: Nodes, ring: Number, node: Number) -> bool:
    last = np.int64(nodes[np.uint64(2 * ring)])
    if last >= nodes.shape[0] // 2:
        return False
    _join(nodes, last, node)
    _join(nodes, node, ring)
    return True


@inlined
def _look_ahead(wheel: WheelTables, rows: Numbers, begin: int) -> Number:
    """Reads what the next rows need, so that the memory works on all of it at once.

    What is returned means nothing; it is there so that the compiler does not leave out the reading.
    """
    nodes, end = wheel.nodes, min(begin + _AHEAD, rows.shape[0])
    last = nodes.shape[0] // 2 - 1
    seen = np.int64(0)
    for i in range(begin, end):
        row = rows[np.uint64(i)]
        seen += nodes[np.uint64(2 * (row + FIRST_ROW))]
        seen += wheel.records[np.uint64(row * wheel.stride + wheel.due_at)]
    for i in range(begin, end):
        node = rows[np.uint64(i)] + FIRST_ROW
        seen += nodes[np.uint64(2 * min(np.int64(nodes[np.uint64(2 * node)]), last))]
        seen += nodes[np.uint64(2 * min(np.int64(nodes[np.uint64(2 * node + 1)]), last))]
    return seen


@kernel
def move_rows(wheel: WheelTables, rows: Numbers, dues: Numbers, valid: Mask, seen: Numbers) -> bool:
    """Brings each row to the list of its new due; of a row twice, the last counts.

    That due is set in the record when the list is another one, and is the caller's to set in any
    case, after this. The rows are in use, as the caller has made sure. Returns False at nonsense.
    """
    nodes, position = wheel.nodes, wheel.head[POSITION]
    for i in range(rows.shape[0]):
        if i % _AHEAD == 0:
            seen[0] = _look_ahead(wheel, rows, i)
        row = rows[np.uint64(i)]
        node = row + FIRST_ROW
        at = np.uint64(row * wheel.stride + wheel.due_at)
        is_in = nodes[np.uint64(2 * node)] != 0
        target = np.int64(0)
        if valid[np.uint64(i)]:
            due = dues[np.uint64(i)]
            target = _list_of(due, position)
            if is_in and _list_of(wheel.records[at], position) == target:
                continue
            wheel.records[at] = due
        if is_in and not _take_out(nodes, node):
            return False
        if target != 0 and not _append(nodes, target, node):
            return False
    return True


@kernel
def take_rows_out(wheel: WheelTables, rows: Numbers, seen: Numbers) -> bool:
    """Those that are in no list stay so. Returns False at nonsense."""
    for i in range(rows.shape[0]):
        if i % _AHEAD == 0:
            seen[0] = _look_ahead(wheel, rows, i)
        node = rows[np.uint64(i)] + FIRST_ROW
        if wheel.nodes[np.uint64(2 * node)] != 0 and not _take_out(wheel.nodes, node):
            return False
    return True


@inlined
def _all_overdue(nodes: Nodes, ring: Number) -> bool:
    """Moves a list as a whole."""
    first = np.int64(nodes[np.uint64(2 * ring + 1)])
    if first == ring:
        return True
    last = np.int64(nodes[np.uint64(2 * ring)])
    end = np.int64(nodes[np.uint64(2 * OVERDUE)])
    count = nodes.shape[0] // 2
    if first >= count or last >= count or end >= count:
        return False
    _join(nodes, end, first)
    _join(nodes, last, OVERDUE)
    _join(nodes, ring, ring)
    return True


@kernel
def move_on(wheel: WheelTables, clock: int) -> int:
    """Brings the position to the clock, if it is before it. Returns 0 or DAMAGED."""
    nodes, head = wheel.nodes, wheel.head
    position = head[POSITION]
    if clock <= position:
        return 0
    number = _top_digit(np.uint64(clock) ^ np.uint64(position))
    ring = _DIGITS + _VALUES * number
    # All that differs from the position in lower digits only is before the clock,
    for each in range(_DIGITS, ring):
        if not _all_overdue(nodes, each):
            return DAMAGED
    # and so is what has a lower value than the clock in this one.
    for value in range(_digit(position, number) + 1, _digit(clock, number)):
        if not _all_overdue(nodes, ring + value):
            return DAMAGED
    head[POSITION] = clock
    ring += _digit(clock, number)
    node = np.int64(nodes[np.uint64(2 * ring + 1)])
    _join(nodes, ring, ring)
    rows = min(head[USED], wheel.records.shape[0] // wheel.stride, nodes.shape[0] // 2 - FIRST_ROW)
    for _ in range(rows + 1):
        if node == ring:
            return 0
        row = node - FIRST_ROW
        if row < 0 or row >= rows:
            return DAMAGED
        following = np.int64(nodes[np.uint64(2 * node + 1)])
        due = wheel.records[np.uint64(row * wheel.stride + wheel.due_at)]
        if not _append(nodes, _list_of(due, clock), node):
            return DAMAGED
        node = following
    return DAMAGED


@kernel
def overdue_rows(wheel: WheelTables, clock: int, ends: Numbers, found: Numbers) -> Number:
    """Those of the overdue that are due at the clock, between two nodes of their list.

    Returns how many, or DAMAGED. `ends` are the nodes to go on from then, OVERDUE when that is all.
    The walk is from both ends, as at each the memory has to answer before it is known what to ask.
    """
    nodes, records, stride = wheel.nodes, wheel.records, wheel.stride
    rows = min(wheel.head[USED], records.shape[0] // stride, nodes.shape[0] // 2 - FIRST_ROW)
    front, back = ends[0], ends[1]
    count = np.int64(0)
    for _ in range(rows // 2 + 1):
        if count + 2 > found.shape[0]:
            ends[0], ends[1] = front, back
            return count
        first, last = front - FIRST_ROW, back - FIRST_ROW
        if first < 0 or first >= rows or last < 0 or last >= rows:
            return DAMAGED
        following = np.int64(nodes[np.uint64(2 * front + 1)])
        before = np.int64(nodes[np.uint64(2 * back)])
        if not records[np.uint64(first * stride)] & records[np.uint64(last * stride)] & LIVE:
            return DAMAGED
        found[np.uint64(count)] = first
        count += np.int64(records[np.uint64(first * stride + wheel.due_at)] <= clock)
        if first == last:
            ends[0] = OVERDUE
            return count
        found[np.uint64(count)] = last
        count += np.int64(records[np.uint64(last * stride + wheel.due_at)] <= clock)
        if following == back:
            ends[0] = OVERDUE
            return count
        front, back = following, before
    return DAMAGED
