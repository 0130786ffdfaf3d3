"""What a view is made of: a tree of operators over tables of changes.

Filter, Project and Union are linear and keep nothing; the others have state. Every column of a plan
has a name of its own, which is the same from where it is made up to where it is last needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sqlglot import exp

Expr: TypeAlias = exp.Expr
_BOUND = "bound"


class Col(NamedTuple):
    """A column as the plan names it; `table` is "" in what the view gives out."""

    table: str
    name: str

    def __str__(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name

    def ref(self) -> exp.Column:
        column = exp.column(
            exp.to_identifier(self.name, quoted=True), exp.to_identifier(self.table, quoted=True)
        )
        column.meta[_BOUND] = True
        return column


@dataclass(frozen=True, eq=False)
class Scan:
    """The rows of a table; of its columns those that are needed, by the names that it has."""

    table: str
    alias: str
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(Col(self.alias, name) for name in self.names)

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Filter:
    input: "Plan"
    condition: Expr

    @property
    def columns(self) -> tuple[Col, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Project:
    input: "Plan"
    outputs: tuple[tuple[Col, Expr], ...]

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(column for column, _ in self.outputs)

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Join:
    """Equality alone, in which nulls are equal if it is `null_safe`; of no pairs, every row meets
    every other. `how` is inner, left, full, semi or anti; a right join is a left one, turned."""

    left: "Plan"
    right: "Plan"
    how: str
    on: tuple[tuple[Col, Col], ...]
    null_safe: bool = False

    @property
    def columns(self) -> tuple[Col, ...]:
        if self.how in ("semi", "anti"):
            return self.left.columns
        return (*self.left.columns, *self.right.columns)

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.left, self.right)


class Order(NamedTuple):
    column: Col
    descending: bool
    nulls_first: bool


class Call(NamedTuple):
    """What is asked of the values of a column: count, sum, mean, min, max, stddev; distinct, the
    number of different ones; collect and collect_set, an array in an order, without nulls. The
    count of no column is that of the rows."""

    function: str
    column: Col | None
    order: tuple[Order, ...] = ()

    @property
    def columns(self) -> list[Col]:
        """Those that it reads."""
        own = [] if self.column is None else [self.column]
        return [*own, *(each.column for each in self.order)]


class Span(NamedTuple):
    """Windows over time: `step` is None of those that follow each other without overlap, and a
    session lasts until nothing has come for its size."""

    column: Col
    time: Col
    size: str
    step: str | None = None
    session: bool = False


@dataclass(frozen=True, eq=False)
class Aggregate:
    """A row for each `by`; without any, one row, also of no rows at all. Without `calls` it is
    what there is of different rows."""

    input: "Plan"
    by: tuple[Col, ...]
    calls: tuple[tuple[Col, Call], ...]
    span: Span | None = None

    @property
    def columns(self) -> tuple[Col, ...]:
        window = () if self.span is None else (self.span.column,)
        return (*window, *self.by, *(column for column, _ in self.calls))

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Windows:
    """Each row with each window over time that it is in, in a column of its own; none without a
    time."""

    input: "Plan"
    span: Span

    @property
    def columns(self) -> tuple[Col, ...]:
        return (*self.input.columns, self.span.column)

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Union:
    """All rows of both, column by column in their order."""

    left: "Plan"
    right: "Plan"
    columns: tuple[Col, ...]

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class SetOperation:
    """`kind` is except or intersect. With `every`, as often as both sides together say."""

    left: "Plan"
    right: "Plan"
    columns: tuple[Col, ...]
    kind: str
    every: bool

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Top:
    """The first `limit` rows of each `by` after `skip` others. `order` ends with all columns that
    the query did not name, so that no two rows are equal in it; `rank` is their number, from 1 on.
    """

    input: "Plan"
    by: tuple[Col, ...]
    order: tuple[Order, ...]
    limit: int | None
    rank: Col | None = None
    skip: int = 0

    @property
    def columns(self) -> tuple[Col, ...]:
        return self.input.columns if self.rank is None else (*self.input.columns, self.rank)

    @property
    def inputs(self) -> tuple["Plan", ...]:
        return (self.input,)


Plan: TypeAlias = Scan | Filter | Project | Join | Aggregate | Windows | Union | SetOperation | Top


def distinct(plan: Plan) -> Plan:
    if isinstance(plan, Aggregate) and not plan.calls and plan.by and plan.span is None:
        return plan
    return Aggregate(plan, plan.columns, ())


def is_bound(column: exp.Column) -> bool:
    """Whether it is a column of the plan, and no longer a name in the query."""
    return _BOUND in column.meta


def columns_in(expression: Expr) -> Iterator[Col]:
    for column in expression.find_all(exp.Column):
        yield Col(column.table, column.name)


def widened(plan: Plan, *more: tuple[Col, Expr]) -> Plan:
    """With some columns computed besides those that are there."""
    if not more:
        return plan
    return Project(plan, (*((column, column.ref()) for column in plan.columns), *more))


def narrowed(plan: Plan, columns: tuple[Col, ...]) -> Plan:
    if plan.columns == columns:
        return plan
    return Project(plan, tuple((column, column.ref()) for column in columns))
