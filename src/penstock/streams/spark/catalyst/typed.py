"""What rules for Catalyst's expressions are made of."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.streams.algebra.rows.expressions.language import (
    LITERAL,
    TYPES,
    Expression,
)
from penstock.streams.spark.catalyst.tree import ExprId, Tree

Kind = str | dict[str, Any]  # Spark's name of a simple type; what JSON says of another
Rule = Callable[["Translation", Tree], "Typed"]

INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_JSON = {name: json for json, name in _NAMES.items()}


class Untranslatable(Exception):
    """Only Spark knows."""


class Typed(NamedTuple):
    expression: Expression
    kind: Kind


class Translation:
    """Of expressions over columns that are expressions themselves."""

    def __init__(self, columns: Mapping[ExprId, Typed], rules: Mapping[str, Rule]) -> None:
        self._columns = columns
        self._rules = rules
        self.common: dict[str, Typed] = {}  # what a CommonExpressionRef is about

    def of(self, tree: Tree) -> Typed:
        """Raises Untranslatable."""
        if tree.name == "AttributeReference":
            check(tree.expr_id in self._columns)
            return self._columns[tree.expr_id]
        check(tree.name in self._rules)
        return self._rules[tree.name](self, tree)

    def operands(self, tree: Tree) -> list[Typed]:
        return [self.of(each) for each in tree.children]


def references(tree: Tree) -> Iterator[ExprId]:
    """The columns that an expression reads, each as often as it does."""
    if tree.name == "AttributeReference":
        yield tree.expr_id
    for child in tree.children:
        yield from references(child)


def type_of(data_type: Any) -> Kind:
    """Of what JSON says."""
    if isinstance(data_type, str):
        return _NAMES.get(data_type, data_type)
    check("__COLLATIONS" not in str(data_type))
    return dict(data_type)


def json_of(kind: Kind) -> Any:
    return _JSON.get(kind, kind) if isinstance(kind, str) else kind


def is_simple(kind: Kind) -> bool:
    return isinstance(kind, str) and (kind in TYPES or kind.startswith("decimal"))


def decimal_of(kind: Kind) -> tuple[int, int]:
    """Precision and scale."""
    check(isinstance(kind, str) and kind.startswith("decimal"))
    precision, scale = str(kind)[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def check(condition: bool) -> None:
    if not condition:
        raise Untranslatable


def check_ansi(tree: Tree) -> None:
    """JSON does not tell try_cast from cast, nor try_add from plus."""
    check(tree.java.evalMode().toString() == "ANSI")


def is_in_utc(tree: Tree) -> bool:
    return bool(tree.fields.get("timeZoneId", "UTC") == "UTC")


def one_kind(operands: list[Typed]) -> Kind:
    kind = operands[0].kind
    check(kind != "void" and all(each.kind == kind for each in operands))
    return kind


def made(operator: str, operands: list[Typed], kind: Kind) -> Typed:
    return Typed([operator, *(each.expression for each in operands)], kind)


def null_of(kind: Kind) -> Typed:
    check(is_simple(kind))
    return Typed([LITERAL, None, kind], kind)


def literal_of(found: Typed) -> Any:
    """The value of a literal that is not null."""
    check(found.expression[0] == LITERAL and found.expression[1] is not None)
    return found.expression[1]
