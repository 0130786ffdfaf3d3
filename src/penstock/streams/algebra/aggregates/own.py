"""Aggregates that users write: three functions over plain Python values.

geometric_mean = ps.Aggregation(
    partial=lambda prices: (sum(map(math.log, prices)), len(prices)),
    merge=lambda one, other: (one[0] + other[0], one[1] + other[1]),
    result=lambda state: math.exp(state[0] / state[1]),
    state="logs double, count long",
    returns="double",
)
ps.aggregate(orders, by="customer", typical=geometric_mean("price"))
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers, frozen
from penstock.events.schema import parse_schema
from penstock.streams.algebra.folds.fold import Failure, Fold, Parts
from penstock.streams.algebra.multisets.tally import bounds_of
from penstock.streams.algebra.rows.group_loops import sort_by_group
from penstock.streams.algebra.rows.groups import Groups
from penstock.streams.algebra.rows.shape import RowShape
from penstock.streams.state import fixed_width


@dataclass(frozen=True)
class Aggregation:
    """Called with the names of columns it is an aggregate like `sum("amount")`.

    `partial` is given, for each column, the list of a key's values, in no order that one can rely
    on; rows in which one of them is null are left out. It gives a state, `merge` makes one of two,
    and `result` makes the result of one. Merged in any order, states have to give the same result:
    rows come in any cuts. A key without values has no state, and null for its result.

    `state` has the columns of a state, in Spark's DDL, and `returns` is the type of the result. A
    state of one column is its value, one of several a tuple; all None stands for no state.

    They are called once for each key and batch, not for each row. No rows can be taken back, so
    tables are refused. What a function raises is raised as KernelError, with the name and the key.
    """

    partial: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    state: str
    returns: str

    def __post_init__(self) -> None:
        _ = parse_schema(self.state), self.kind

    @property
    def kind(self) -> pa.DataType:
        return parse_schema(f"result {self.returns}").field(0).type

    def __call__(self, *columns: str) -> "OwnAggregate":
        if not columns:
            raise InvalidInput(
                "an aggregation is given no column", hint='name what it reads: geometric("price")'
            )
        return OwnAggregate(self, columns)


@dataclass(frozen=True)
class OwnAggregate:
    aggregation: Aggregation
    names: tuple[str, ...]
    name: ClassVar[str] = "own"

    def columns(self, rows: RowShape) -> Sequence[str]:
        return self.names

    def fold(self, rows: RowShape) -> Fold:
        for column in self.names:
            rows.kind_of(column)
        if rows.weighted:
            raise InvalidInput(
                f"there is no aggregation of {', '.join(map(repr, self.names))} over a table",
                hint="a table's rows can go, which it does not follow: use penstock's own, such as "
                "sum, quantile or collect",
            )
        return OwnFold(self.aggregation, self.names)

    def options(self) -> dict[str, Any]:
        """Without the functions, which JSON cannot hold."""
        about = self.aggregation
        return {"columns": list(self.names), "state": about.state, "returns": about.returns}


@dataclass(frozen=True)
class OwnFold:
    aggregation: Aggregation
    columns: tuple[str, ...]
    order_free = False  # as the user's functions may add up doubles

    @property
    def parts(self) -> Sequence[tuple[str, pa.DataType]]:
        return [(field.name, field.type) for field in parse_schema(self.aggregation.state)]

    @property
    def kind(self) -> pa.DataType:
        return self.aggregation.kind

    def partial(self, rows: pa.RecordBatch, weights: Numbers | None, groups: Groups) -> Parts:
        valid = np.ones(rows.num_rows, np.bool_)
        for name in self.columns:
            valid &= fixed_width.validity(rows.column(name))
        there = np.flatnonzero(valid)
        ids = groups.ids[there]
        bounds = bounds_of(ids, len(groups))
        order = np.empty(len(ids), np.int64)
        sort_by_group(frozen(ids), bounds[:-1].copy(), order)
        picked = pa.array(there[order])
        values = [rows.column(name).take(picked).to_pylist() for name in self.columns]
        states: list[Any] = [None] * len(groups)
        ends = bounds.tolist()
        for group in np.unique(ids).tolist():
            span = slice(ends[group], ends[group + 1])
            with _of_group(group):
                states[group] = self.aggregation.partial(*(each[span] for each in values))
        return self._written(states)

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        if into is None and groups.are_single:
            return parts
        states = [None] * len(groups) if into is None else self._states(into)
        for group, state in zip(groups.ids.tolist(), self._states(parts), strict=True):
            if states[group] is None:
                states[group] = state
            elif state is not None:
                with _of_group(group):
                    states[group] = self.aggregation.merge(states[group], state)
        return self._written(states)

    def result(self, parts: Parts) -> pa.Array:
        results: list[Any] = [None] * len(parts[0])
        for group, state in enumerate(self._states(parts)):
            if state is not None:
                with _of_group(group):
                    results[group] = self.aggregation.result(state)
        return _typed(results, self.kind)

    def _states(self, parts: Parts) -> list[Any]:
        if len(parts) == 1:
            return list(parts[0].to_pylist())
        rows = zip(*(part.to_pylist() for part in parts), strict=True)
        return [row if any(each is not None for each in row) else None for row in rows]

    def _written(self, states: list[Any]) -> Parts:
        kinds = [kind for _, kind in self.parts]
        if len(kinds) == 1:
            return [_typed(states, kinds[0])]
        nothing = (None,) * len(kinds)
        rows = []
        for group, state in enumerate(states):
            with _of_group(group):
                row = nothing if state is None else tuple(state)
                if len(row) != len(kinds):
                    raise TypeError(
                        f"a state has {len(row)} values and not {len(kinds)} "
                        f"({self.aggregation.state})"
                    )
                rows.append(row)
        columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
        return [_typed(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for group, value in enumerate(values):  # to find the one that does not fit
            with _of_group(group):
                pa.array([value], kind)
        raise


@contextmanager
def _of_group(group: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise Failure(group, error) from error
