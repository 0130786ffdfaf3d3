"""Texts, which are UTF-8 and are compared byte by byte; positions count code points."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.streams.algebra.rows.expressions.language import Expression
from penstock.streams.algebra.rows.expressions.refusals import Answer, Values

_TRIMS: dict[str, Callable[..., Any]] = {
    "trim": pc.utf8_trim,
    "ltrim": pc.utf8_ltrim,
    "rtrim": pc.utf8_rtrim,
}
_SEARCHES: dict[str, Callable[..., Any]] = {
    "starts with": pc.starts_with,
    "ends with": pc.ends_with,
    "contains": pc.match_substring,
    "like": pc.match_like,
}
# Letters of both cases of Unicode 15 to 17, which Spark 4.3 knows and Python 3.11 does not.
_TO_LOWER = {
    **{letter: letter + 1 for letter in (0x1C89, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA)},
    **{letter: letter + 0x20 for letter in range(0x10D50, 0x10D66)},
    **{letter: letter + 0x1B for letter in range(0x16EA0, 0x16EB9)},
    0xA7CB: 0x264,
    0xA7DC: 0x19B,
}
_TO_UPPER = {lower: upper for upper, lower in _TO_LOWER.items()}


def concatenated(operands: Sequence[Values], expression: Expression) -> Answer:
    separator = pa.scalar("" if pa.types.is_string(operands[0].type) else b"", operands[0].type)
    return Answer(pc.binary_join_element_wise(*operands, separator))


def in_case(operands: Sequence[Values], expression: Expression) -> Answer:
    """As Unicode has it, several letters for one at times: Arrow only knows one for one."""
    texts, upper = operands[0], expression[0] == "upper"
    changed = pc.ascii_upper(texts) if upper else pc.ascii_lower(texts)
    ascii_only = pc.string_is_ascii(texts)
    if ascii_only.false_count == 0:
        return Answer(changed)
    others = pc.fill_null(pc.invert(ascii_only), False)
    change, newer = (str.upper, _TO_UPPER) if upper else (str.lower, _TO_LOWER)
    longer = [change(text.translate(newer)) for text in texts.filter(others).to_pylist()]
    return Answer(pc.replace_with_mask(changed, others, pa.array(longer, texts.type)))


def length(operands: Sequence[Values], expression: Expression) -> Answer:
    """Of a text in code points, of bytes in bytes."""
    values = operands[0]
    count = pc.binary_length if pa.types.is_binary(values.type) else pc.utf8_length
    return Answer(count(values))


def substring(operands: Sequence[Values], expression: Expression) -> Answer:
    """From a position that counts from 1, or backwards from the end; 0 is taken for 1."""
    _, _, position, size = expression
    if size <= 0:
        return Answer(pc.utf8_slice_codeunits(operands[0], 0, 0))
    if position >= 0:
        start = max(position - 1, 0)
        return Answer(pc.utf8_slice_codeunits(operands[0], start, start + size))
    # Counted from before the text if it is shorter than that, as Spark does.
    stop = position + size
    return Answer(pc.utf8_slice_codeunits(operands[0], position, stop if stop < 0 else None))


def trimmed(operands: Sequence[Values], expression: Expression) -> Answer:
    return Answer(_TRIMS[expression[0]](operands[0], expression[2]))


def searched(operands: Sequence[Values], expression: Expression) -> Answer:
    return Answer(_SEARCHES[expression[0]](operands[0], expression[2]))
