"""Which rows and columns of a table are meant, where that can be said without Spark.

    Selection().where(["<=", ["column", "opened"], ["column", "at"]]).chosen({"price": "bid_price"})

An expression is a column, a literal, or an operator and what it is about; JSON can hold it. Numbers
are integers, and what is compared is of one kind, so that Arrow answers as Spark SQL does: with
null where it is not known, which is no reason to keep a row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.streams.algebra.kernel import schema_from_spec, schema_to_spec
from penstock.streams.state import fixed_width

Expression = list[Any]
Choice = Mapping[str, str | Expression]
COLUMN, LITERAL = "column", "literal"
FIELD = "field"  # of a struct, by its name
TUMBLING = "tumbling"  # the window of a time, of so many microseconds
_OPERATORS: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "not": pc.invert,
    "is null": pc.is_null,
}
_JOINED: dict[str, Callable[..., Any]] = {"and": pc.and_kleene, "or": pc.or_kleene}


@dataclass(frozen=True)
class Selection:
    """Conditions and choices of columns, new names for old ones or for what they come to, one after
    the other; at last the columns that are wanted, of the types that they are wanted in."""

    steps: tuple[Choice | Expression, ...] = ()
    wanted: pa.Schema | None = None

    def where(self, condition: Expression) -> Self:
        return replace(self, steps=(*self.steps, condition))

    def chosen(self, columns: Choice) -> Self:
        return replace(self, steps=(*self.steps, dict(columns)))

    def shaped(self, wanted: pa.Schema) -> Self:
        return replace(self, wanted=wanted)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for step in self.steps:
            if isinstance(step, Mapping):
                rows = _chosen(step, rows)
            else:
                answer = _answer(step, rows)
                if isinstance(answer, pa.Scalar):  # it is about no column
                    answer = pa.repeat(answer, rows.num_rows)
                rows = rows.filter(answer)
        if self.wanted is None:
            return rows
        columns = [rows.column(each.name).cast(each.type) for each in self.wanted]
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)

    def reads(self, names: Sequence[str]) -> set[str]:
        """Which columns it needs of rows that have these."""
        needed = None if self.wanted is None else set(self.wanted.names)
        for step in reversed(self.steps):
            if isinstance(step, Mapping):
                chosen = [old for new, old in step.items() if needed is None or new in needed]
                needed = {name for each in chosen for name in _columns(each)}
            elif needed is not None:
                needed |= set(_columns(step))
        return set(names) if needed is None else needed

    def spec(self) -> dict[str, Any]:
        """What JSON can hold, and `from_spec` makes this one from."""
        wanted = None if self.wanted is None else schema_to_spec(self.wanted)
        return {"steps": list(self.steps), "wanted": wanted}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        wanted = spec["wanted"]
        return cls(tuple(spec["steps"]), None if wanted is None else schema_from_spec(wanted))


ALL = Selection()


def _chosen(columns: Choice, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without those that nobody needs further on, and of which nothing was read."""
    there = set(rows.schema.names)
    found = {
        new: rows.column(old) if isinstance(old, str) else _answer(old, rows)
        for new, old in columns.items()
        if there.issuperset(_columns(old))
    }
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _columns(expression: str | Expression) -> Iterator[str]:
    if isinstance(expression, str):
        yield expression
        return
    operator, *about = expression
    if operator == COLUMN:
        yield about[0]
    elif operator in (FIELD, TUMBLING):
        yield from _columns(about[0])
    elif operator != LITERAL:
        for each in about:
            yield from _columns(each)


def _answer(expression: Expression, rows: pa.RecordBatch) -> Any:
    operator, *about = expression
    if operator == COLUMN:
        return rows.column(about[0])
    if operator == LITERAL:
        return pa.scalar(about[0])
    if operator == FIELD:
        return pc.struct_field(_answer(about[0], rows), about[1])
    if operator == TUMBLING:
        return _window(_answer(about[0], rows), about[1])
    first, *more = (_answer(each, rows) for each in about)
    if operator in _JOINED:  # of any number
        return reduce(_JOINED[operator], more, first)
    return _OPERATORS[operator](first, *more)


def _window(times: pa.TimestampArray, size: int) -> pa.StructArray:
    """Those of times that are no nulls."""
    starts = fixed_width.numbers(times) // size * size
    bounds = [pa.array(each).cast(times.type) for each in (starts, starts + size)]
    return pa.StructArray.from_arrays(bounds, names=["start", "end"])
