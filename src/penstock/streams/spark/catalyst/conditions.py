"""Conditions and choices."""

from penstock.streams.spark.catalyst.tree import Tree
from penstock.streams.spark.catalyst.typed import (
    FLOATS,
    Rule,
    Translation,
    Typed,
    check,
    is_simple,
    made,
    null_of,
    one_kind,
)


def comparison(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        operands = translation.operands(tree)
        check(is_simple(one_kind(operands)))
        return made(operator, operands, "boolean")

    return rule


def of_booleans(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        operands = translation.operands(tree)
        check(one_kind(operands) == "boolean")
        return made(operator, operands, "boolean")

    return rule


def is_null(translation: Translation, tree: Tree) -> Typed:
    return made("is null", translation.operands(tree), "boolean")


def is_not_null(translation: Translation, tree: Tree) -> Typed:
    return Typed(["not", is_null(translation, tree).expression], "boolean")


def is_nan(translation: Translation, tree: Tree) -> Typed:
    operands = translation.operands(tree)
    check(operands[0].kind in FLOATS)
    return made("is nan", operands, "boolean")


def has_enough(translation: Translation, tree: Tree) -> Typed:
    """That so many are neither null nor NaN, as dropna() says it."""
    conditions = []
    for each in translation.operands(tree):
        there = ["not", ["is null", each.expression]]
        number = ["not", ["is nan", each.expression]]
        conditions.append(["and", there, number] if each.kind in FLOATS else there)
    check(tree.fields["n"] in (1, len(conditions)))
    if len(conditions) == 1:
        return Typed(conditions[0], "boolean")
    return Typed(["or" if tree.fields["n"] == 1 else "and", *conditions], "boolean")


def choice(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        operands = translation.operands(tree)
        return made(operator, operands, one_kind(operands))

    return rule


def extreme(operator: str) -> Rule:
    def rule(translation: Translation, tree: Tree) -> Typed:
        operands = translation.operands(tree)
        kind = one_kind(operands)
        check(is_simple(kind))
        return made(operator, operands, kind)

    return rule


def case(translation: Translation, tree: Tree) -> Typed:
    parts = translation.operands(tree)
    kind = one_kind([*parts[1::2], *(parts[-1:] if len(parts) % 2 else [])])
    check(all(each.kind == "boolean" for each in parts[: len(parts) // 2 * 2 : 2]))
    if len(parts) % 2 == 0:
        parts.append(null_of(kind))
    return made("case", parts, kind)


def null_if(translation: Translation, tree: Tree) -> Typed:
    predicate, value = translation.operands(tree)
    return made("case", [predicate, null_of(value.kind), value], value.kind)


def nan_or(translation: Translation, tree: Tree) -> Typed:
    value, otherwise = translation.operands(tree)
    kind = one_kind([value, otherwise])
    check(kind in FLOATS)
    is_nan = made("is nan", [value], "boolean")
    return made("case", [is_nan, otherwise, value], kind)


def with_common(translation: Translation, tree: Tree) -> Typed:
    """Expressions that are used several times: NULLIF and BETWEEN are made of one."""
    body, *definitions = tree.children
    for each in definitions:
        translation.common[_common_id(each)] = translation.of(each.children[0])
    return translation.of(body)


def common(translation: Translation, tree: Tree) -> Typed:
    name = _common_id(tree)
    check(name in translation.common)
    return translation.common[name]


def _common_id(tree: Tree) -> str:
    """JSON does not have it."""
    return str(tree.java.id().toString())


def same(translation: Translation, tree: Tree) -> Typed:
    """Replaced by its only child, or nothing but a hint for Spark."""
    (found,) = translation.operands(tree)
    return found
