"""Which rows and columns of a table are meant, where that can be said without Spark.

    Selection().where(["<=", ["column", "opened"], ["column", "at"]]).chosen({"price": "bid_price"})

A condition is a column, a literal, or an operator and what it is about; JSON can hold it. Numbers
are integers, and what is compared is of one kind, so that Arrow answers as Spark SQL does: with
null where it is not known, which is no reason to keep a row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.streams.algebra.kernel import schema_from_spec, schema_to_spec

Condition = list[Any]
COLUMN, LITERAL = "column", "literal"
_OPERATORS: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "is null": pc.is_null,
}


@dataclass(frozen=True)
class Selection:
    """Conditions and choices of columns, new names for old ones, one after the other; at last the
    columns that are wanted, of the types that they are wanted in."""

    steps: tuple[Mapping[str, str] | Condition, ...] = ()
    wanted: pa.Schema | None = None

    def where(self, condition: Condition) -> Self:
        return replace(self, steps=(*self.steps, condition))

    def chosen(self, columns: Mapping[str, str]) -> Self:
        return replace(self, steps=(*self.steps, dict(columns)))

    def shaped(self, wanted: pa.Schema) -> Self:
        return replace(self, wanted=wanted)

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for step in self.steps:
            if isinstance(step, Mapping):
                columns = [rows.column(old) for old in step.values()]
                rows = pa.RecordBatch.from_arrays(columns, names=list(step))
            else:
                answer = _answer(step, rows)
                if isinstance(answer, pa.Scalar):  # it is about no column
                    answer = pa.repeat(answer, rows.num_rows)
                rows = rows.filter(answer)
        if self.wanted is None:
            return rows
        columns = [rows.column(each.name).cast(each.type) for each in self.wanted]
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)

    def spec(self) -> dict[str, Any]:
        """What JSON can hold, and `from_spec` makes this one from."""
        wanted = None if self.wanted is None else schema_to_spec(self.wanted)
        return {"steps": list(self.steps), "wanted": wanted}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        wanted = spec["wanted"]
        return cls(tuple(spec["steps"]), None if wanted is None else schema_from_spec(wanted))


def _answer(condition: Condition, rows: pa.RecordBatch) -> Any:
    operator, *about = condition
    if operator == COLUMN:
        return rows.column(about[0])
    if operator == LITERAL:
        return pa.scalar(about[0])
    return _OPERATORS[operator](*(_answer(each, rows) for each in about))
