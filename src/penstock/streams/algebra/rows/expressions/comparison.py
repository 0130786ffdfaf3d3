"""What is equal, less or more: NaN is equal to itself and more than any number; 0.0 is -0.0."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.streams.algebra.rows.expressions.language import Expression
from penstock.streams.algebra.rows.expressions.refusals import Answer, Values

_ARROW: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compared(operands: Sequence[Values], expression: Expression) -> Answer:
    left, right = operands
    return Answer(compare(expression[0], left, right))


def compare(operator: str, left: Values, right: Values) -> Values:
    answer = _ARROW[operator](left, right)
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return _with_nan(operator, left, right, answer)
    return answer


def _with_nan(operator: str, left: Values, right: Values, answer: Values) -> Values:
    one, other = pc.is_nan(left), pc.is_nan(right)
    if not (_any(one) or _any(other)):
        return answer
    if operator == "=":
        return pc.or_(answer, pc.and_(one, other))
    if operator == "<>":
        return pc.and_not(answer, pc.and_(one, other))
    if operator == "<":
        return pc.or_(answer, pc.and_not(other, one))
    if operator == ">":
        return pc.or_(answer, pc.and_not(one, other))
    return pc.or_(answer, other if operator == "<=" else one)  # all are at most NaN


def _any(flags: Values) -> bool:
    if isinstance(flags, pa.Scalar):
        return bool(flags.as_py())
    return bool(flags.true_count)


def same(operands: Sequence[Values], expression: Expression) -> Answer:
    """Equal, or both null: never null itself."""
    left, right = operands
    equal = pc.fill_null(compare("=", left, right), False)
    return Answer(pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))))


def extreme(operands: Sequence[Values], expression: Expression) -> Answer:
    """The greatest or the least that is not null, the first of them."""
    operator = ">" if expression[0] == "greatest" else "<"
    found, *others = operands
    for each in others:
        better = pc.fill_null(compare(operator, each, found), False)
        found = pc.coalesce(pc.if_else(better, each, found), each)
    return Answer(found)


def is_nan(operands: Sequence[Values], expression: Expression) -> Answer:
    return Answer(pc.fill_null(pc.is_nan(operands[0]), False))


def is_null(operands: Sequence[Values], expression: Expression) -> Answer:
    return Answer(pc.is_null(operands[0]))


def inverted(operands: Sequence[Values], expression: Expression) -> Answer:
    return Answer(pc.invert(operands[0]))
