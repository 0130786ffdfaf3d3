"""Texts by the bytes of UTF-8; other collations are other types."""

from penstock.streams.spark.catalyst.tree import Tree
from penstock.streams.spark.catalyst.typed import (
    Rule,
    Translation,
    Typed,
    check,
    literal_of,
    made,
    one_kind,
)


def concat(translation: Translation, tree: Tree) -> Typed:
    operands = translation.operands(tree)
    kind = one_kind(operands)
    check(kind in ("string", "binary"))
    return made("concat", operands, kind)


def of_text(operator: str, kind: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        (operand,) = translation.operands(tree)
        check(operand.kind == "string" or (operator, operand.kind) == ("length", "binary"))
        return made(operator, [operand], kind)

    return rule


def substring(translation: Translation, tree: Tree) -> Typed:
    text, position, size = translation.operands(tree)
    return _slice(text, literal_of(position), literal_of(size))


def left(translation: Translation, tree: Tree) -> Typed:
    text, size = translation.operands(tree)
    return _slice(text, 1, literal_of(size))


def _slice(text: Typed, position: int, size: int) -> Typed:
    check(text.kind == "string")
    return Typed(["substring", text.expression, position, size], "string")


def trim(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        text, *characters = translation.operands(tree)
        check(text.kind == "string")
        trimmed = literal_of(characters[0]) if characters else " "
        return Typed([operator, text.expression, trimmed], "string")

    return rule


def search(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        text, pattern = translation.operands(tree)
        check(text.kind == "string")
        sought = literal_of(pattern)
        if operator == "like":
            check("\\" not in sought and tree.java.escapeChar() == "\\")
        return Typed([operator, text.expression, sought], "boolean")

    return rule
