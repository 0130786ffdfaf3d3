"""The compiled reading of JSON objects: the usual ones in one pass, the others left out.

What is read here is read exactly as the plain way in `json.py` reads it; whatever is unusual or
wrong is left for that way to judge.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.events.compiled import Bytes, Number, Numbers, Positions, inlined, kernel, part
from penstock.events.formats.instants import (
    EARLIEST,
    LATEST,
    NO_DAYS,
    NO_INSTANT,
    ZONED,
    days,
    instant,
)
from penstock.events.formats.json_syntax import (
    CLOSES_OBJECT,
    escape,
    number,
    skip,
    solid,
    text,
    word,
)

# How a column's values are read. Of text and of raw values the place and the size are noted.
INTEGER, REAL, DECIMAL, TEXT, FLAG, DATE, TIME, LOCAL_TIME, RAW = range(9)

# What is noted of a value: none; one; text with escapes; a number to be read from its text.
ABSENT, PRESENT, ESCAPED, HARD = range(4)

DECIMAL_DIGITS = 18  # as many as a decimal may have to be read here

Marks = NDArray[np.uint8]
Reals = NDArray[np.float64]

_TENS = np.array([10.0**power for power in range(23)])  # those that a double holds exactly
_WHOLE = np.uint64(2**53)
_LIMIT = np.uint64(2**63)
_ROOM = np.uint64(10**DECIMAL_DIGITS)


@part
def _after_name(
    source: Bytes, at: Number, end: Number, names: Bytes, places: Numbers, column: int
) -> Number:
    """Where the quote stands after this column's name, which begins at `at`; -1 if it does not."""
    if column >= places.shape[0] - 1:
        return np.int64(-1)
    start = places[np.uint64(column)]
    size: Number = places[np.uint64(column + 1)] - start
    if end - at <= size or source[np.uint64(at + size)] != 34:
        return np.int64(-1)
    for byte in range(size):
        if names[np.uint64(start + byte)] != source[np.uint64(at + byte)]:
            return np.int64(-1)
    return at + size


@part
def _column(source: Bytes, at: Number, close: Number, names: Bytes, places: Numbers) -> int:
    """The column whose name stands from `at` to the quote at `close`, or -1."""
    for column in range(places.shape[0] - 1):
        if _after_name(source, at, close + 1, names, places, column) == close:
            return column
    return -1


@inlined
def _value(
    source: Bytes,
    at: Number,
    end: Number,
    kind: Number,
    bound: Number,
    column: int,
    row: int,
    cells: Numbers,
    reals: Reals,
    sizes: Numbers,
    marks: Marks,
) -> Number:
    """Reads a value into its cell; the place after it, or -1 when it is not a usual one."""
    byte = source[np.uint64(at)]
    if byte == 110:
        at, _ = word(source, at, end)
        marks[column, row] = ABSENT
        return at
    mark = PRESENT
    if kind == RAW:
        start = at
        at = skip(source, at, end)
        cells[column, row] = start
        sizes[column, row] = at - start
    elif byte == 34:
        start = at + 1
        close, size = text(source, start, end)
        if close < 0:
            return close
        at = close + 1
        if kind == TEXT:
            cells[column, row] = start
            sizes[column, row] = size
            if size != close - start:
                mark = ESCAPED
        elif kind in (TIME, LOCAL_TIME):
            found, micros = instant(source, start, close)
            if found == NO_INSTANT or (found == ZONED and kind == LOCAL_TIME):
                return np.int64(-1)
            cells[column, row] = micros
        elif kind == DATE:
            date = days(source, start, close)
            if date == NO_DAYS:
                return np.int64(-1)
            cells[column, row] = date
        else:
            return np.int64(-1)
    elif kind == FLAG:
        at, flag = word(source, at, end)
        cells[column, row] = flag
    elif kind in (TEXT, DATE):
        return np.int64(-1)
    else:
        start = at
        minus = byte == 45
        at, digits, power, written = number(source, at, end)
        if at < 0:
            return at
        if kind == REAL:
            if written < 2 and digits <= _WHOLE and -22 <= power <= 22:
                real = np.float64(digits)
                if power < 0:
                    real /= _TENS[np.uint64(-power)]
                else:
                    real *= _TENS[np.uint64(power)]
                reals[column, row] = -real if minus else real
            else:
                while digits >= np.uint64(10):
                    digits //= np.uint64(10)
                    power += 1
                if power >= bound or power < -290:
                    return np.int64(-1)
                cells[column, row] = start
                sizes[column, row] = at - start
                mark = HARD
        elif kind == DECIMAL:
            power += bound
            while power > 0 and digits < _ROOM:
                digits *= np.uint64(10)
                power -= 1
            if power != 0 or written >= 2 or digits >= _ROOM:
                return np.int64(-1)
            cells[column, row] = -np.int64(digits) if minus else np.int64(digits)
        else:
            if written != 0 or digits > _LIMIT or (digits == _LIMIT and not minus):
                return np.int64(-1)
            integer = -np.int64(digits) if minus else np.int64(digits)
            if kind == INTEGER:
                if integer > bound or integer < -bound - 1:
                    return np.int64(-1)
            else:
                if integer < EARLIEST // 1000 or integer > LATEST // 1000:
                    return np.int64(-1)
                integer *= 1000
            cells[column, row] = integer
    marks[column, row] = mark
    return at


@part
def _object(
    source: Bytes,
    at: Number,
    end: Number,
    names: Bytes,
    places: Numbers,
    kinds: Numbers,
    bounds: Numbers,
    row: int,
    cells: Numbers,
    reals: Reals,
    sizes: Numbers,
    marks: Marks,
) -> bool:
    at = solid(source, at, end)
    if at >= end or source[np.uint64(at)] != 123:
        return False
    at = solid(source, at + 1, end)
    if at < end and source[np.uint64(at)] == CLOSES_OBJECT:
        return solid(source, at + 1, end) == end
    column = -1
    while True:
        at = solid(source, at, end)
        if at >= end or source[np.uint64(at)] != 34:
            return False
        found = column + 1  # the usual order is that of the columns
        close = _after_name(source, at + 1, end, names, places, found)
        if close < 0:
            close, size = text(source, at + 1, end)
            if close < 0 or size != close - at - 1:
                return False
            found = _column(source, at + 1, close, names, places)
        at = solid(source, close + 1, end)
        if at >= end or source[np.uint64(at)] != 58:
            return False
        at = solid(source, at + 1, end)
        if at >= end:
            return False
        if found < 0:
            at = skip(source, at, end)
        else:
            column = found
            at = _value(
                source,
                at,
                end,
                kinds[column],
                bounds[column],
                column,
                row,
                cells,
                reals,
                sizes,
                marks,
            )
        if at < 0:
            return False
        at = solid(source, at, end)
        if at >= end:
            return False
        byte = source[np.uint64(at)]
        at += 1
        if byte == CLOSES_OBJECT:
            return solid(source, at, end) == end
        if byte != 44:
            return False


@kernel
def read_objects(
    source: Bytes,
    values: Positions,
    names: Bytes,
    places: Numbers,
    kinds: Numbers,
    bounds: Numbers,
    cells: Numbers,
    reals: Reals,
    sizes: Numbers,
    marks: Marks,
    kept: Numbers,
) -> int:
    """Reads the objects between the positions `values`, those that are usual, into cells.

    A cell is `cells[column, row]`, or `reals` in the same memory; rows are counted without those
    left out, and `kept` gets the number of the value that each came from. Returns how many.
    """
    row = 0
    columns = kinds.shape[0]
    for value in range(values.shape[0] - 1):
        for column in range(columns):
            marks[column, row] = ABSENT
        if _object(
            source,
            np.int64(values[np.uint64(value)]),
            np.int64(values[np.uint64(value + 1)]),
            names,
            places,
            kinds,
            bounds,
            row,
            cells,
            reals,
            sizes,
            marks,
        ):
            kept[np.uint64(row)] = value
            row += 1
    return row


@kernel
def copy_texts(source: Bytes, starts: Numbers, marks: Marks, places: Positions, out: Bytes) -> None:
    """Copies texts, which begin at `starts`, to their places, and unescapes those so marked."""
    for row in range(places.shape[0] - 1):
        at: Number = starts[np.uint64(row)]
        place = np.int64(places[np.uint64(row)])
        stop = np.int64(places[np.uint64(row + 1)])
        if marks[np.uint64(row)] != ESCAPED:
            for byte in range(stop - place):
                out[np.uint64(place + byte)] = source[np.uint64(at + byte)]
            continue
        end = np.int64(source.shape[0])
        while place < stop:
            if source[np.uint64(at)] != 92:
                out[np.uint64(place)] = source[np.uint64(at)]
                place += 1
                at += 1
                continue
            point, at = escape(source, at, end)
            if point < 0x80:
                out[np.uint64(place)] = point
                place += 1
                continue
            more = 1 if point < 0x800 else 2 if point < 0x10000 else 3
            lead = 0xC0 if more == 1 else 0xE0 if more == 2 else 0xF0
            out[np.uint64(place)] = lead | point >> 6 * more
            for byte in range(more):
                shift = 6 * (more - 1 - byte)
                out[np.uint64(place + 1 + byte)] = 0x80 | (point >> shift) & 0x3F
            place += more + 1
