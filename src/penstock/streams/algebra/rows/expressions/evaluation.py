"""An expression's answer for every row of a batch, or why there is none.

All operands are computed for all rows. What a row is refused for counts where Spark would have
come to it: not in a branch of CASE that is not taken, not after an operand that is null, nor after
one that settles AND or OR.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.events.compiled import Mask
from penstock.streams.algebra.rows.expressions import (
    arithmetic,
    casts,
    comparison,
    dates,
    strings,
)
from penstock.streams.algebra.rows.expressions.language import (
    BATCH_TIME,
    COLUMN,
    FIELD,
    LITERAL,
    STRUCT,
    TUMBLING,
    Expression,
    batch_time,
    literal,
    operands_of,
)
from penstock.streams.algebra.rows.expressions.refusals import (
    Answer,
    Reasons,
    Values,
    as_array,
    earlier,
    is_valid,
    where,
)

Operation = Callable[[Sequence[Values], Expression], Answer]


def evaluate(expression: Expression, rows: pa.RecordBatch) -> Answer:
    """A literal's value is one for all rows; any other, an array of them."""
    operator = expression[0]
    if operator == COLUMN:
        return Answer(rows.column(expression[1]))
    if operator == LITERAL:
        return Answer(literal(expression[1:]))
    if operator == BATCH_TIME:
        return Answer(pa.scalar(batch_time.get(), pa.timestamp("us", "UTC")))
    if operator in _SPECIAL:
        return _SPECIAL[operator](expression, rows)
    answers = [evaluate(each, rows) for each in operands_of(expression)]
    operands = [answer.values for answer in answers]
    if all(isinstance(each, pa.Scalar) for each in operands):
        operands[0] = as_array(operands[0], rows.num_rows)
    found = _OPERATIONS[operator](operands, expression)
    if all(answer.refused is None for answer in answers):
        return found
    if operator in _DIVISOR_FIRST:
        answers.reverse()
    inner = _in_turn(answers, rows.num_rows, all_of_them=operator in _WITH_NULLS)
    return Answer(found.values, earlier(inner, found.refused))


def evaluate_condition(expression: Expression, rows: pa.RecordBatch) -> Answer:
    """Of a filter: unlike AND elsewhere, one condition that is null settles it."""
    if expression[0] != "and":
        return evaluate(expression, rows)
    answers = [evaluate(each, rows) for each in expression[1:]]
    found = reduce(pc.and_kleene, (answer.values for answer in answers))
    refused: Reasons | None = None
    if any(answer.refused is not None for answer in answers):
        reached = np.ones(rows.num_rows, np.bool_)
        for answer in answers:
            refused = _also(refused, reached, answer)
            reached &= _is_true(answer.values, rows.num_rows)
    return Answer(found, refused)


def _in_turn(answers: Sequence[Answer], rows: int, *, all_of_them: bool) -> Reasons | None:
    """What they are refused for, until one is null, unless all of them count."""
    refused: Reasons | None = None
    reached = np.ones(rows, np.bool_)
    for answer in answers:
        if answer.refused is not None:
            refused = earlier(refused, where(reached, answer.refused))
        if not all_of_them:
            reached &= is_valid(answer.values, rows)
    return refused


def _connected(expression: Expression, rows: pa.RecordBatch) -> Answer:
    """AND and OR of any number, of which one that is false, or true, settles it."""
    operator, *parts = expression
    join = pc.and_kleene if operator == "and" else pc.or_kleene
    answers = [evaluate(each, rows) for each in parts]
    if all(answer.refused is None for answer in answers):
        return Answer(reduce(join, (answer.values for answer in answers)))
    found, refused = answers[0]
    for answer in answers[1:]:
        if answer.refused is not None:
            settled = _is_true(found if operator == "or" else pc.invert(found), rows.num_rows)
            refused = earlier(refused, where(~settled, answer.refused))
        found = join(found, answer.values)
    return Answer(found, refused)


def _chosen_case(expression: Expression, rows: pa.RecordBatch) -> Answer:
    parts = [evaluate(each, rows) for each in expression[1:]]
    *branches, otherwise = parts
    values = as_array(otherwise.values, rows.num_rows)
    for condition, then in reversed(list(zip(branches[::2], branches[1::2], strict=True))):
        values = pc.if_else(pc.fill_null(condition.values, False), then.values, values)
    if all(part.refused is None for part in parts):
        return Answer(values)
    refused: Reasons | None = None
    left = np.ones(rows.num_rows, np.bool_)
    for condition, then in zip(branches[::2], branches[1::2], strict=True):
        true = left & _is_true(condition.values, rows.num_rows)
        refused = _also(_also(refused, left, condition), true, then)
        left &= ~true
    return Answer(values, _also(refused, left, otherwise))


def _coalesced(expression: Expression, rows: pa.RecordBatch) -> Answer:
    answers = [evaluate(each, rows) for each in expression[1:]]
    values = as_array(pc.coalesce(*(answer.values for answer in answers)), rows.num_rows)
    refused: Reasons | None = None
    if any(answer.refused is not None for answer in answers):
        left = np.ones(rows.num_rows, np.bool_)
        for answer in answers:
            refused = _also(refused, left, answer)
            left &= ~is_valid(answer.values, rows.num_rows)
    return Answer(values, refused)


def _also(refused: Reasons | None, reached: Mask, answer: Answer) -> Reasons | None:
    if answer.refused is None:
        return refused
    return earlier(refused, where(reached, answer.refused))


def _contained(expression: Expression, rows: pa.RecordBatch) -> Answer:
    """Null where it is not found and a null is among the others."""
    _, first, *others = expression
    value = evaluate(first, rows)
    plain = all(each[0] == LITERAL for each in others)
    if plain and isinstance(value.values, pa.Array) and not pa.types.is_floating(value.values.type):
        known = [literal(each[1:]) for each in others]
        return Answer(_found_among(value.values, known), value.refused)
    answers = [evaluate(each, rows) for each in others]
    equal = [comparison.compare("=", value.values, answer.values) for answer in answers]
    refused = value.refused
    if any(answer.refused is not None for answer in answers):
        left = is_valid(value.values, rows.num_rows)
        for answer, same in zip(answers, equal, strict=True):
            refused = _also(refused, left, answer)
            left &= ~_is_true(same, rows.num_rows)
    return Answer(as_array(reduce(pc.or_kleene, equal), rows.num_rows), refused)


def _found_among(values: pa.Array, others: list[pa.Scalar]) -> pa.Array:
    known = [each for each in others if each.is_valid]
    among = pc.is_in(values, pa.array([each.as_py() for each in known], values.type))
    unknown = pc.is_null(values) if len(known) == len(others) else pc.invert(among)
    return pc.if_else(pc.or_(unknown, pc.is_null(values)), pa.scalar(None, pa.bool_()), among)


def _struct(expression: Expression, rows: pa.RecordBatch) -> Answer:
    names = [each[1] for each in expression[1::2]]
    answers = [evaluate(each, rows) for each in expression[2::2]]
    arrays = [as_array(answer.values, rows.num_rows) for answer in answers]
    made = pa.StructArray.from_arrays(arrays, names=names)
    return Answer(made, _in_turn(answers, rows.num_rows, all_of_them=True))


def _field(operands: Sequence[Values], expression: Expression) -> Answer:
    return Answer(pc.struct_field(operands[0], expression[2]))


def _is_true(values: Values, rows: int) -> Mask:
    flags: Mask = pc.fill_null(as_array(values, rows), False).to_numpy(zero_copy_only=False)
    return flags


_SPECIAL: dict[str, Callable[[Expression, pa.RecordBatch], Answer]] = {
    "and": _connected,
    "or": _connected,
    "case": _chosen_case,
    "coalesce": _coalesced,
    "in": _contained,
    STRUCT: _struct,
}
_OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), comparison.compared),
    "<=>": comparison.same,
    "not": comparison.inverted,
    "is null": comparison.is_null,
    "is nan": comparison.is_nan,
    **dict.fromkeys(("greatest", "least"), comparison.extreme),
    **dict.fromkeys(("+", "-", "*", "/", "div"), arithmetic.calculated),
    **dict.fromkeys(("%", "pmod"), arithmetic.remainder),
    "negate": arithmetic.negated,
    "abs": arithmetic.absolute,
    "cast": casts.cast,
    "micros": casts.micros,
    "from micros": casts.from_micros,
    "concat": strings.concatenated,
    **dict.fromkeys(("upper", "lower"), strings.in_case),
    "length": strings.length,
    "substring": strings.substring,
    **dict.fromkeys(("trim", "ltrim", "rtrim"), strings.trimmed),
    **dict.fromkeys(("starts with", "ends with", "contains", "like"), strings.searched),
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second"), dates.part),
    "truncate": dates.truncated,
    "shift": dates.shifted,
    TUMBLING: dates.tumbling,
    FIELD: _field,
}
_DIVISOR_FIRST = {"/", "div", "%", "pmod"}
_WITH_NULLS = {"<=>", "is null", "is nan", "greatest", "least", "concat"}
