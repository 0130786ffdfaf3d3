"""JSON's grammar, compiled: where values end, and what texts and numbers say.

Every index is proven before it is used: a byte is read only where `at < end`, and -1 stands for a
place that was not found.
"""

import numpy as np

from penstock.events.compiled import Bytes, Number, part

CLOSES_LIST, CLOSES_OBJECT = 93, 125


@part
def solid(source: Bytes, at: Number, end: Number) -> Number:
    """The next byte that is not blank, or `end`."""
    while at < end:
        byte = source[np.uint64(at)]
        if byte > 32 or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        at += 1
    return at


@part
def _hex(source: Bytes, at: Number, end: Number) -> Number:
    """The number of four hexadecimal digits, or -1."""
    if end - at < 4:
        return np.int64(-1)
    found = np.int64(0)
    for place in range(4):
        byte = np.int64(source[np.uint64(at + place)])
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 65 <= (byte & 0xDF) <= 70:
            digit = (byte & 0xDF) - 55
        else:
            return np.int64(-1)
        found = found << 4 | digit
    return found


@part
def escape(source: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """The character that the backslash at `at` begins, and the place after; -1 for neither."""
    at += 1
    if at >= end:
        return np.int64(-1), np.int64(-1)
    byte = source[np.uint64(at)]
    at += 1
    if byte == 117:  # u
        point = _hex(source, at, end)
        at += 4
        if 0xD800 <= point < 0xDC00:
            if end - at < 2 or source[np.uint64(at)] != 92 or source[np.uint64(at + 1)] != 117:
                return np.int64(-1), np.int64(-1)
            second = _hex(source, at + 2, end)
            if second < 0xDC00 or second > 0xDFFF:
                return np.int64(-1), np.int64(-1)
            return 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00), at + 6
        if point < 0 or 0xDC00 <= point < 0xE000:
            return np.int64(-1), np.int64(-1)
        return point, at
    if byte == 34 or byte == 92 or byte == 47:  # quote, backslash, slash
        return np.int64(byte), at
    if byte == 110:
        return np.int64(10), at
    if byte == 116:
        return np.int64(9), at
    if byte == 114:
        return np.int64(13), at
    if byte == 98:
        return np.int64(8), at
    if byte == 102:
        return np.int64(12), at
    return np.int64(-1), np.int64(-1)


@part
def text(source: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """Where the quote stands that closes the text from `at` on, and the text's size unescaped."""
    start = at
    saved = np.int64(0)  # how many bytes longer the text is as it stands
    while at < end:
        byte = source[np.uint64(at)]
        if byte == 34:
            return at, at - start - saved
        if byte == 92:
            point, after = escape(source, at, end)
            if after < 0:
                break
            size = 1 if point < 0x80 else 2 if point < 0x800 else 3 if point < 0x10000 else 4
            saved += after - at - size
            at = after
        elif byte < 32:
            break
        else:
            at += 1
    return np.int64(-1), np.int64(0)


@part
def number(source: Bytes, at: Number, end: Number) -> tuple[Number, np.uint64, Number, int]:
    """A number: the place after it, its digits, their power of ten, and how it is written.

    The last is 0 for an integer, 1 for any other, and 2 more when there are more digits than fit;
    the power then counts them in. The sign is left to the caller.
    """
    digits = np.uint64(0)
    power = np.int64(0)
    written = 0
    if at < end and source[np.uint64(at)] == 45:
        at += 1
    first = at
    while at < end and 48 <= source[np.uint64(at)] <= 57:
        if digits < np.uint64(10**18):
            digits = digits * np.uint64(10) + np.uint64(source[np.uint64(at)] - 48)
        else:
            written = 2
            power += 1
        at += 1
    if at == first or (at - first > 1 and source[np.uint64(first)] == 48):
        return np.int64(-1), digits, power, 0
    if at < end and source[np.uint64(at)] == 46:
        at += 1
        first = at
        written |= 1
        while at < end and 48 <= source[np.uint64(at)] <= 57:
            if digits < np.uint64(10**18):
                digits = digits * np.uint64(10) + np.uint64(source[np.uint64(at)] - 48)
                power -= 1
            else:
                written |= 2
            at += 1
        if at == first:
            return np.int64(-1), digits, power, 0
    if at < end and (source[np.uint64(at)] | 32) == 101:
        at += 1
        written |= 1
        shrinks = at < end and source[np.uint64(at)] == 45
        if shrinks or (at < end and source[np.uint64(at)] == 43):
            at += 1
        first = at
        exponent = np.int64(0)
        while at < end and 48 <= source[np.uint64(at)] <= 57:
            if exponent < 100_000:
                exponent = exponent * 10 + np.int64(source[np.uint64(at)] - 48)
            at += 1
        if at == first:
            return np.int64(-1), digits, power, 0
        power += -exponent if shrinks else exponent
    return at, digits, power, written


@part
def word(source: Bytes, at: Number, end: Number) -> tuple[Number, int]:
    """true (1), false (0) or null (-1), and the place after it, or -1."""
    if end - at >= 4:
        a, b = source[np.uint64(at)], source[np.uint64(at + 1)]
        c, d = source[np.uint64(at + 2)], source[np.uint64(at + 3)]
        if a == 116 and b == 114 and c == 117 and d == 101:
            return at + 4, 1
        if a == 110 and b == 117 and c == 108 and d == 108:
            return at + 4, -1
        false = a == 102 and b == 97 and c == 108 and d == 115
        if false and end - at >= 5 and source[np.uint64(at + 4)] == 101:
            return at + 5, 0
    return np.int64(-1), 0


@part
def _name(source: Bytes, at: Number, end: Number) -> Number:
    """The place after a name and its colon, or -1."""
    at = solid(source, at, end)
    if at >= end or source[np.uint64(at)] != 34:
        return np.int64(-1)
    close, _ = text(source, at + 1, end)
    if close < 0:
        return np.int64(-1)
    at = solid(source, close + 1, end)
    if at >= end or source[np.uint64(at)] != 58:
        return np.int64(-1)
    return at + 1


@part
def skip(source: Bytes, at: Number, end: Number) -> Number:
    """The place after the value at `at`, or -1 when it is not sound or more than 64 deep."""
    objects = np.uint64(0)  # a bit for each level, the innermost last
    depth = 0
    while True:
        at = solid(source, at, end)
        if at >= end:
            return np.int64(-1)
        byte = source[np.uint64(at)]
        if byte == 123 or byte == 91:
            if depth == 64:
                return np.int64(-1)
            depth += 1
            objects = objects << np.uint64(1) | np.uint64(byte == 123)
            at = solid(source, at + 1, end)
            if at >= end:
                return np.int64(-1)
            if source[np.uint64(at)] != (CLOSES_OBJECT if byte == 123 else CLOSES_LIST):
                if byte == 123:
                    at = _name(source, at, end)
                    if at < 0:
                        return at
                continue
            at += 1
            depth -= 1
            objects >>= np.uint64(1)
        elif byte == 34:
            at, _ = text(source, at + 1, end)
            if at < 0:
                return at
            at += 1
        elif byte == 45 or 48 <= byte <= 57:
            at, _, _, _ = number(source, at, end)
        else:
            at, _ = word(source, at, end)
        if at < 0:
            return at
        while depth > 0:  # what follows a value
            at = solid(source, at, end)
            if at >= end:
                return np.int64(-1)
            byte = source[np.uint64(at)]
            inside = objects & np.uint64(1)
            at += 1
            if byte == 44:
                if inside:
                    at = _name(source, at, end)
                    if at < 0:
                        return at
                break
            if byte != (CLOSES_OBJECT if inside else CLOSES_LIST):
                return np.int64(-1)
            depth -= 1
            objects >>= np.uint64(1)
        if depth == 0:
            return at
