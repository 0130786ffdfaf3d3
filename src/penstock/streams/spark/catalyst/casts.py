"""Casts between types, those that Spark makes of numbers among them."""

from penstock.streams.spark.catalyst.literals import cast_literal
from penstock.streams.spark.catalyst.tree import Tree
from penstock.streams.spark.catalyst.typed import (
    FLOATS,
    INTEGERS,
    Kind,
    Translation,
    Typed,
    Untranslatable,
    check,
    check_ansi,
    decimal_of,
    is_in_utc,
    is_simple,
    type_of,
)

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
# From what to what, and whether a value may be refused.
_CASTS: dict[tuple[str, str], bool] = {
    **{
        (one, other): INTEGERS.index(one) > INTEGERS.index(other)
        for one in INTEGERS
        for other in INTEGERS
    },
    **{(one, other): False for one in INTEGERS for other in (*FLOATS, "boolean", "string")},
    **{(one, other): True for one in FLOATS for other in INTEGERS},
    **{(one, other): False for one in FLOATS for other in (*FLOATS, "boolean")},
    **{("boolean", other): False for other in (*INTEGERS, *FLOATS, "string")},
    **{("string", other): True for other in INTEGERS},
    ("timestamp", "date"): False,
    ("date", "timestamp"): True,
    ("timestamp", "bigint"): False,
    ("timestamp", "double"): False,
    ("bigint", "timestamp"): False,
}


def cast(translation: Translation, tree: Tree) -> Typed:
    (operand,) = translation.operands(tree)
    wanted = type_of(tree.fields["dataType"])
    if operand.kind == wanted:
        return operand
    if not isinstance(wanted, str) or not is_simple(wanted) or not is_in_utc(tree):
        raise Untranslatable
    refuses = _refuses(operand.kind, wanted)
    general = None if refuses is None else ["cast", operand.expression, wanted]
    if operand.expression[0] == "literal":
        if operand.expression[1] is not None:
            check_ansi(tree)
        folded = cast_literal(operand, wanted, general)
        if folded is not None:
            return folded
    check(general is not None)
    if refuses:
        check_ansi(tree)
    return Typed(["cast", operand.expression, wanted], wanted)


def _refuses(kind: Kind, wanted: str) -> bool | None:
    """Whether such a cast may; None where there is no such cast."""
    if isinstance(kind, str) and (kind, wanted) in _CASTS:
        return _CASTS[kind, wanted]
    if not wanted.startswith("decimal"):
        return None
    precision, scale = decimal_of(wanted)
    if kind in INTEGERS:
        return False if precision - scale >= _DIGITS[str(kind)] else None
    if isinstance(kind, str) and kind.startswith("decimal"):
        had, after = decimal_of(kind)
        return False if precision - scale >= had - after and scale >= after else None
    return None
