"""Which rows and columns of a table are meant, where that can be said without Spark.

    Selection().where(["<=", ["column", "opened"], ["column", "at"]]).chosen({"price": "bid_price"})

An expression is a column, a literal, or an operator and what it is about; JSON can hold it. They
are answered as Spark SQL does: with null where it is not known, which is no reason to keep a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import KernelError
from penstock.streams.algebra.kernel import schema_from_spec, schema_to_spec
from penstock.streams.algebra.rows.expressions import (
    Expression,
    columns_of,
    evaluate,
    evaluate_condition,
)
from penstock.streams.algebra.rows.expressions.language import COLUMN, FIELD, LITERAL, TUMBLING
from penstock.streams.algebra.rows.expressions.refusals import (
    Reasons,
    as_array,
    earlier,
    refused_rows,
)

__all__ = [
    "ALL",
    "COLUMN",
    "FIELD",
    "LITERAL",
    "TUMBLING",
    "Checked",
    "Choice",
    "Expression",
    "Refused",
    "Selection",
    "columns_in",
]

Choice = Mapping[str, str | Expression]


class Refused(NamedTuple):
    row: int  # its place among the rows that were given
    reason: str


class Checked(NamedTuple):
    rows: pa.RecordBatch
    refused: list[Refused]  # in the order of the rows


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

    def keeping(self, names: Sequence[str]) -> Self:
        """The same, and these columns of the rows that are given, as they are."""
        kept = {name: name for name in names}
        steps = [{**step, **kept} if isinstance(step, Mapping) else step for step in self.steps]
        return replace(self, steps=tuple(steps))

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Raises KernelError where a row has no answer, as when a sum leaves its type."""
        found, refused = self.checked(rows)
        if refused:
            raise KernelError(
                f"{refused[0].reason}, in a row of {rows.num_rows:,}",
                hint="leave such rows out before, with a filter, or use a wider type",
            )
        return found

    def checked(self, rows: pa.RecordBatch) -> Checked:
        """Leaves out the rows that have no answer, and says which they are and why."""
        given = rows.num_rows
        kept: list[pa.Array] = []  # by the steps so far, each of what was there before it
        refused: list[Refused] = []
        for step in self._needed:
            if isinstance(step, Mapping):
                rows, reasons = _chosen(step, rows)
                mask = None
            else:
                answer, reasons = evaluate_condition(step, rows)
                mask = as_array(answer, rows.num_rows)
            if reasons is not None:
                refused += _named(reasons, _places(given, kept))
                fine = reasons == None  # noqa: E711 - of every element
                mask = pa.array(fine) if mask is None else pc.and_(mask, pa.array(fine))
            if mask is not None:
                rows = rows.filter(mask)
                kept.append(mask)
        return Checked(self._as_wanted(rows), sorted(refused))

    def pruned(self) -> Self:
        """Without columns that nobody needs: what they would be refused for is nothing to Spark
        either, which does not compute them."""
        steps: list[Choice | Expression] = []
        needed = None if self.wanted is None else set(self.wanted.names)
        for step in reversed(self.steps):
            if isinstance(step, Mapping):
                kept = _kept(step, needed)
                needed = {name for each in kept.values() for name in columns_in(each)}
                steps.append(kept)
            else:
                needed = None if needed is None else needed.union(columns_in(step))
                steps.append(step)
        return replace(self, steps=tuple(steps[::-1]))

    @cached_property
    def _needed(self) -> tuple[Choice | Expression, ...]:
        return self.pruned().steps

    def _as_wanted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.wanted is None:
            return rows
        given = [rows.column(each.name) for each in self.wanted]
        columns = [
            column if column.type == each.type else column.cast(each.type)
            for column, each in zip(given, self.wanted, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)

    def reads(self, names: Sequence[str]) -> set[str]:
        """Which columns it needs of rows that have these: one at least, which counts them."""
        needed = None if self.wanted is None else set(self.wanted.names)
        for step in reversed(self._needed):
            if isinstance(step, Mapping):
                needed = {name for each in step.values() for name in columns_in(each)}
            elif needed is not None:
                needed |= set(columns_in(step))
        return set(names) if needed is None else needed or set(names[:1])

    def spec(self) -> dict[str, Any]:
        """What JSON can hold, and `from_spec` makes this one from."""
        wanted = None if self.wanted is None else schema_to_spec(self.wanted)
        return {"steps": list(self.steps), "wanted": wanted}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        wanted = spec["wanted"]
        return cls(tuple(spec["steps"]), None if wanted is None else schema_from_spec(wanted))


ALL = Selection()


def _kept(columns: Choice, needed: set[str] | None) -> Choice:
    """Those that are needed; one at least, as rows without columns cannot be counted."""
    if needed is None:
        return columns
    kept = {new: old for new, old in columns.items() if new in needed}
    return kept or dict(sorted(columns.items(), key=lambda each: not isinstance(each[1], str))[:1])


def _chosen(columns: Choice, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Reasons | None]:
    """Without those that nobody needs further on, and of which nothing was read."""
    there = set(rows.schema.names)
    found: dict[str, pa.Array] = {}
    refused: Reasons | None = None
    for new, old in columns.items():
        if isinstance(old, str):
            if old in there:
                found[new] = rows.column(old)
        elif there.issuperset(columns_of(old)):
            answer = evaluate(old, rows)
            found[new] = as_array(answer.values, rows.num_rows)
            refused = earlier(refused, answer.refused)
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found)), refused


def columns_in(expression: str | Expression) -> list[str]:
    """Those that it is made of."""
    return [expression] if isinstance(expression, str) else list(columns_of(expression))


def _places(given: int, kept: Sequence[pa.Array]) -> NDArray[np.int64]:
    """Where the rows that are left were at first."""
    places = pa.array(np.arange(given))
    for mask in kept:
        places = places.filter(mask)
    return np.asarray(places)


def _named(reasons: Reasons, places: NDArray[np.int64]) -> list[Refused]:
    return [Refused(int(places[row]), str(reasons[row])) for row in refused_rows(reasons)]
