"""Which of Catalyst's expressions are translated.

The analyzer has inserted casts, so that operands are of one type. What is not listed here, or has
another mode than ANSI, is Untranslatable: what is not the same twice, above all.
"""

from collections.abc import Mapping

from penstock.streams.algebra.rows.expressions import Expression
from penstock.streams.algebra.rows.expressions.language import operands_of
from penstock.streams.spark.catalyst import casts, conditions, numbers, structs, texts, times
from penstock.streams.spark.catalyst.literals import literal
from penstock.streams.spark.catalyst.tree import ExprId, Tree
from penstock.streams.spark.catalyst.typed import Rule, Translation, Typed, check

_MOST = 5_000  # operators in an expression: columns that are used twice make it grow

_RULES: dict[str, Rule] = {
    "Literal": literal,
    "Cast": casts.cast,
    "EqualTo": conditions.comparison("="),
    "EqualNullSafe": conditions.comparison("<=>"),
    "LessThan": conditions.comparison("<"),
    "LessThanOrEqual": conditions.comparison("<="),
    "GreaterThan": conditions.comparison(">"),
    "GreaterThanOrEqual": conditions.comparison(">="),
    "In": conditions.comparison("in"),
    "And": conditions.of_booleans("and"),
    "Or": conditions.of_booleans("or"),
    "Not": conditions.of_booleans("not"),
    "IsNull": conditions.is_null,
    "IsNotNull": conditions.is_not_null,
    "IsNaN": conditions.is_nan,
    "AtLeastNNonNulls": conditions.has_enough,
    "CaseWhen": conditions.case,
    "If": conditions.case,
    "Coalesce": conditions.choice("coalesce"),
    "Greatest": conditions.extreme("greatest"),
    "Least": conditions.extreme("least"),
    "NaNvl": conditions.nan_or,
    "NullIfResult": conditions.null_if,
    "With": conditions.with_common,
    "CommonExpressionRef": conditions.common,
    **dict.fromkeys(("NullIf", "Between", "Nvl", "Nvl2"), conditions.same),
    **dict.fromkeys(("KnownNullable", "KnownNotNull", "DatetimeSub"), conditions.same),
    "Add": numbers.arithmetic("+"),
    "Subtract": numbers.arithmetic("-"),
    "Multiply": numbers.arithmetic("*"),
    "Divide": numbers.arithmetic("/"),
    "IntegralDivide": numbers.arithmetic("div"),
    "Remainder": numbers.arithmetic("%"),
    "Pmod": numbers.arithmetic("pmod"),
    "UnaryMinus": numbers.of_number("negate"),
    "Abs": numbers.of_number("abs"),
    "Concat": texts.concat,
    "Upper": texts.of_text("upper", "string"),
    "Lower": texts.of_text("lower", "string"),
    "Length": texts.of_text("length", "int"),
    "Substring": texts.substring,
    "Left": texts.left,
    "StringTrim": texts.trim("trim"),
    "StringTrimLeft": texts.trim("ltrim"),
    "StringTrimRight": texts.trim("rtrim"),
    "StartsWith": texts.search("starts with"),
    "EndsWith": texts.search("ends with"),
    "Contains": texts.search("contains"),
    "Like": texts.search("like"),
    "Year": times.part("year", "date"),
    "Month": times.part("month", "date"),
    "DayOfMonth": times.part("day", "date"),
    "Hour": times.part("hour", "timestamp"),
    "Minute": times.part("minute", "timestamp"),
    "Second": times.part("second", "timestamp"),
    "TruncTimestamp": times.truncated,
    "TruncDate": times.truncated,
    "TimestampAddInterval": times.shifted,
    "UnixMicros": times.micros,
    "PreciseTimestampConversion": times.precise,
    "ParseToDate": times.parsed_date,
    "GetStructField": structs.field,
    "CreateNamedStruct": structs.struct,
}


def typed(tree: Tree, columns: Mapping[ExprId, Typed]) -> Typed:
    """Raises Untranslatable."""
    found = Translation(columns, _RULES).of(tree)
    check(_size(found.expression) <= _MOST)
    return found


def _size(expression: Expression) -> int:
    return 1 + sum(map(_size, operands_of(expression)))
