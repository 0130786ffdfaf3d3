"""Arithmetic in ANSI mode: integers, floats, and decimals where nothing is rounded."""

from penstock.streams.spark.catalyst.tree import Tree
from penstock.streams.spark.catalyst.typed import (
    FLOATS,
    INTEGERS,
    Rule,
    Translation,
    Typed,
    check,
    check_ansi,
    decimal_of,
    made,
    one_kind,
)

_MAX_PRECISION = 38


def arithmetic(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        operands = translation.operands(tree)
        left, right = (each.kind for each in operands)
        if str(left).startswith("decimal") and str(right).startswith("decimal"):
            return made(operator, operands, _decimal_result(operator, str(left), str(right)))
        kind = one_kind(operands)
        check(kind in INTEGERS or (kind in FLOATS and operator != "div"))
        check(kind == "double" if operator == "/" else True)
        check(kind == "bigint" if operator == "div" else True)
        if kind in INTEGERS or operator in ("/", "%", "pmod"):
            check_ansi(tree)
        return made(operator, operands, kind)

    return rule


def _decimal_result(operator: str, left: str, right: str) -> str:
    """Where nothing is rounded and nothing can overflow."""
    (p, s), (q, t) = decimal_of(left), decimal_of(right)
    check(operator in ("+", "-", "*"))
    if operator == "*":
        precision, scale = p + q + 1, s + t
    else:
        scale = max(s, t)
        precision = max(p - s, q - t) + scale + 1
    check(precision <= _MAX_PRECISION)
    return f"decimal({precision},{scale})"


def of_number(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        operands = translation.operands(tree)
        kind = operands[0].kind
        check(kind in INTEGERS + FLOATS and tree.fields["failOnError"])
        return made(operator, operands, kind)

    return rule
