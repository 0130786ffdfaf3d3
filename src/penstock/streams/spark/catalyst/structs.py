"""Structs and their fields; among them tumbling windows."""

from penstock.streams.algebra.rows.expressions.language import (
    FIELD,
    LITERAL,
    STRUCT,
    TUMBLING,
    Expression,
)
from penstock.streams.spark.catalyst.tree import Tree
from penstock.streams.spark.catalyst.typed import (
    Translation,
    Typed,
    check,
    json_of,
    literal_of,
    made,
    type_of,
)


def field(translation: Translation, tree: Tree) -> Typed:
    (operand,) = translation.operands(tree)
    check(isinstance(operand.kind, dict))
    assert isinstance(operand.kind, dict)
    fields = operand.kind["fields"]
    found = fields[tree.fields["ordinal"]]
    check([each["name"] for each in fields].count(found["name"]) == 1)
    return Typed([FIELD, operand.expression, found["name"]], type_of(found["type"]))


def struct(translation: Translation, tree: Tree) -> Typed:
    parts = translation.operands(tree)
    names = [literal_of(each) for each in parts[::2]]
    check(len(set(names)) == len(names))
    check(all(each.kind != "void" for each in parts))
    fields = [
        {"name": name, "type": json_of(each.kind), "nullable": True, "metadata": {}}
        for name, each in zip(names, parts[1::2], strict=True)
    ]
    built = made(STRUCT, parts, {"type": "struct", "fields": fields})
    built.expression[1::2] = [[LITERAL, name] for name in names]
    window = _window(built.expression)
    return built if window is None else Typed(window, built.kind)


def _window(struct: Expression) -> Expression | None:
    """The tumbling window that the analyzer makes of `window(time, size)`, in one operator."""
    try:
        start = struct[2][1]
        remainder = start[1][2][1][1]
        time, offset, size = start[1][1][1], remainder[1][2][1], remainder[2][1]
    except (IndexError, TypeError, KeyError):
        return None
    if not isinstance(size, int) or not isinstance(offset, int):
        return None
    if struct != _spelled_out(time, size, offset):
        return None
    return [TUMBLING, time, size, offset] if offset else [TUMBLING, time, size]


def _spelled_out(time: Expression, size: int, offset: int) -> Expression:
    def number(value: int) -> Expression:
        return [LITERAL, value, "bigint"]

    micros = ["micros", time]
    remainder = ["%", ["-", micros, number(offset)], number(size)]
    into = ["case", ["<", remainder, number(0)], ["+", remainder, number(size)], remainder]
    start = ["-", ["-", micros, into], number(0)]
    bounds = {"start": start, "end": ["+", start, number(size)]}
    fields = [[[LITERAL, name], ["from micros", each]] for name, each in bounds.items()]
    return [STRUCT, *fields[0], *fields[1]]
