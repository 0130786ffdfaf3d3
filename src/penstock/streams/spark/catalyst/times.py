"""Dates and times, in UTC."""

from penstock.streams.algebra.rows.expressions.dates import UNITS
from penstock.streams.spark.catalyst.tree import Tree
from penstock.streams.spark.catalyst.typed import (
    Rule,
    Translation,
    Typed,
    check,
    is_in_utc,
    literal_of,
    made,
    type_of,
)


def part(operator: str, of: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        operands = translation.operands(tree)
        check(operands[0].kind == of and is_in_utc(tree))
        return made(operator, operands, "int")

    return rule


_LENGTHS = ("day", "hour", "minute", "second")
_INTERVALS = {
    *(f"interval {one}" for one in _LENGTHS),
    *(f"interval {one} to {other}" for one in _LENGTHS for other in _LENGTHS),
}
_UNIT_NAMES = {
    "mon": "month",
    "mm": "month",
    "yyyy": "year",
    "yy": "year",
    "dd": "day",
    **{unit: unit for unit in UNITS},
}


def truncated(translation: Translation, tree: Tree) -> Typed:
    operands = translation.operands(tree)
    unit, value = operands if tree.name == "TruncTimestamp" else operands[::-1]
    name = _UNIT_NAMES.get(str(literal_of(unit)).lower())
    if tree.name == "TruncTimestamp":
        check(value.kind == "timestamp" and name is not None and is_in_utc(tree))
    else:
        check(value.kind == "date" and name in ("week", "month", "quarter", "year"))
    return Typed(["truncate", value.expression, name], value.kind)


def shifted(translation: Translation, tree: Tree) -> Typed:
    time, interval = translation.of(tree.children[0]), tree.children[1]
    check(time.kind == "timestamp" and is_in_utc(tree))
    return Typed(["shift", time.expression, _interval(interval)], "timestamp")


def _interval(tree: Tree) -> int:
    """In microseconds: days and less, as months differ."""
    if tree.name == "UnaryMinus":
        return -_interval(tree.children[0])
    check(tree.name == "Literal" and tree.fields["dataType"] in _INTERVALS)
    check(tree.fields["value"] is not None)
    return int(tree.fields["value"])


def micros(translation: Translation, tree: Tree) -> Typed:
    operands = translation.operands(tree)
    check(operands[0].kind == "timestamp")
    return made("micros", operands, "bigint")


def precise(translation: Translation, tree: Tree) -> Typed:
    operands = translation.operands(tree)
    types = (operands[0].kind, type_of(tree.fields["toType"]))
    check(types in (("timestamp", "bigint"), ("bigint", "timestamp")))
    return made("micros" if types[1] == "bigint" else "from micros", operands, types[1])


def parsed_date(translation: Translation, tree: Tree) -> Typed:
    (operand,) = translation.operands(tree)
    if operand.kind == "date":
        return operand
    check(operand.kind == "timestamp" and is_in_utc(tree))
    return Typed(["cast", operand.expression, "date"], "date")
