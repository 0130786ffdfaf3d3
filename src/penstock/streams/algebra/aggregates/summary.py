"""All that is asked of the rows of a group, together: their parts, merged, and the results.

    summary = Summary({"n": count(), "total": sum("amount")}, schema, time="at")
    parts = summary.partial(rows, groups)                # Arrow columns, one row for each group
    parts = summary.merge(other_parts, groups, parts)    # with those there were before
    summary.results(parts, groups.keys)                  # {"n": ..., "total": ...}

Parts are what travels and what state keeps. Merging them in any order and in any cuts gives the
same results, if all that is asked is `order_free`; else they may differ in what is rounded (stddev)
or has no room (approx_top), or in whatever a user's own functions make of it. Over a stream, sums
and means of doubles are kept with twice the bits of one and are taken for order free, though of
numbers that differ by more than that, or add up to more than a double can be, the order can show.
Over a table they are exact.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import KernelError
from penstock.events.compiled import Mask, Numbers
from penstock.streams.algebra.aggregates.basic import Aggregate, First, Last
from penstock.streams.algebra.aggregates.names import (
    aggregate_from_spec,
    aggregate_spec,
    is_portable,
)
from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.algebra.folds.fold import Failure, Fold, Overflow, Parts, is_nothing
from penstock.streams.algebra.folds.picks import Picks
from penstock.streams.algebra.kernel import schema_from_spec, schema_to_spec
from penstock.streams.algebra.rows.groups import Groups, described
from penstock.streams.algebra.rows.shape import RowShape
from penstock.streams.state import fixed_width


class Summary:
    """`time` names the column by which rows are ordered, where their order is asked for.

    What a kernel asks on its `own` account is computed like the rest, and in no spec.
    """

    def __init__(
        self,
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        time: str | None = None,
        own: Mapping[str, Aggregate] | None = None,
    ) -> None:
        self.asked = dict(aggregates)
        self.aggregates = {**aggregates, **(own or {})}
        self.rows = RowShape(schema, time)
        if time is not None:
            self.rows.kind_of(time)
        self._members = list(self._made())
        self.parts = pa.schema([field for each in self._members for field in each.fields])
        kinds = {name: kind for each in self._members for name, kind in each.kinds.items()}
        self.kinds = {name: kinds[name] for name in self.aggregates}
        read = [name for each in self.aggregates.values() for name in each.columns(self.rows)]
        self.needed = tuple(dict.fromkeys([*read, *([WEIGHT] if self.rows.weighted else [])]))

    def _made(self) -> "Iterator[_Member]":
        ordinary: dict[str, Aggregate] = {}
        picked: dict[str, First | Last] = {}
        for name, aggregate in self.aggregates.items():
            if isinstance(aggregate, First | Last) and not self.rows.weighted:
                picked[name] = aggregate
            else:
                ordinary[name] = aggregate
        folds: list[tuple[list[str], Fold | Picks]] = [
            ([name], aggregate.fold(self.rows)) for name, aggregate in ordinary.items()
        ]
        for kind in (First, Last):
            columns = {n: each.column for n, each in picked.items() if type(each) is kind}
            if columns:
                folds.append(([*columns], Picks(columns, self.rows, last=kind is Last)))
        width = 0
        for names, fold in folds:
            yield _Member(names, fold, slice(width, width + len(fold.parts)))
            width += len(fold.parts)

    def partial(self, rows: pa.RecordBatch, groups: Groups) -> Parts:
        """The parts of each group of rows."""
        weights = _weights(rows) if self.rows.weighted else None
        parts: Parts = []
        for member in self._members:
            with member.naming(groups.keys):
                parts += member.fold.partial(rows, weights, groups)
        return parts

    def merge(self, parts: Parts, groups: Groups, into: Parts | None) -> Parts:
        """The parts of each group: those given of it together, and with what was there before.

        A row of `into` that is all null is that of a group of which there was nothing.
        """
        merged: Parts = []
        for member in self._members:
            with member.naming(groups.keys):
                held = None if into is None else into[member.span]
                merged += member.fold.merge(parts[member.span], groups, held)
        return merged

    def results(self, parts: Parts, keys: pa.RecordBatch) -> dict[str, pa.Array]:
        """What is asked for, by name; `keys` says whose parts these are, should one fail."""
        found: dict[str, pa.Array] = {}
        for member in self._members:
            with member.naming(keys):
                found |= member.results(parts[member.span])
        return {name: found[name] for name in self.aggregates}

    def is_nothing(self, parts: Parts, *, but: str = "") -> Mask:
        """Of which groups nothing is left, as if no row had ever been; `but` one name is not asked.

        Only where rows are weighted is there ever nothing.
        """
        asked = [each for each in self._members if but not in each.kinds]
        return is_nothing([part for each in asked for part in parts[each.span]])

    @property
    def order_free(self) -> bool:
        """Whether it does not show in the results in what order and cuts parts are merged."""
        return all(each.fold.order_free for each in self._members)

    @property
    def portable(self) -> bool:
        """Whether a spec says everything, as it cannot of functions that a user wrote."""
        return all(map(is_portable, self.asked.values()))

    def spec(self) -> dict[str, Any]:
        return {
            "aggregates": {name: aggregate_spec(each) for name, each in self.asked.items()},
            "schema": schema_to_spec(self.rows.schema),
            "time": self.rows.time,
        }

    @staticmethod
    def arguments(spec: dict[str, Any]) -> dict[str, Any]:
        """Those that a summary is made with, or a kernel that is asked the same."""
        asked = {name: aggregate_from_spec(each) for name, each in spec["aggregates"].items()}
        schema = schema_from_spec(spec["schema"])
        return {"aggregates": asked, "schema": schema, "time": spec["time"]}


@dataclass(frozen=True)
class _Member:
    """A fold, what it gives, and which of all parts are its own."""

    names: list[str]
    fold: Fold | Picks
    span: slice

    @property
    def fields(self) -> list[pa.Field]:
        if isinstance(self.fold, Picks):
            return list(self.fold.parts)
        (name,) = self.names
        return [pa.field(f"{name}: {part}" if part else name, k) for part, k in self.fold.parts]

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        kinds = self.fold.kinds if isinstance(self.fold, Picks) else [self.fold.kind]
        return dict(zip(self.names, kinds, strict=True))

    def results(self, parts: Parts) -> dict[str, pa.Array]:
        fold = self.fold
        found = fold.results(parts) if isinstance(fold, Picks) else [fold.result(parts)]
        return dict(zip(self.names, found, strict=True))

    @contextmanager
    def naming(self, keys: pa.RecordBatch) -> Iterator[None]:
        """Says which key it is whose total does not fit, or for which a function fails."""
        try:
            yield
        except Overflow as error:
            raise KernelError(
                f"{self.names[0]!r} of {described(keys, error.group)} leaves {error.kind}",
                hint="cast its column to a wider type, such as decimal(38, 0) or double",
            ) from None
        except Failure as error:
            cause = error.cause
            raise KernelError(
                f"{self.names[0]!r} of {described(keys, error.group)} failed: "
                f"{type(cause).__name__}: {cause}",
                hint="it is one of the functions of the Aggregation that raises this; state and "
                "result have to be of the types that it names",
            ) from cause


def _weights(rows: pa.RecordBatch) -> Numbers:
    weights = rows.column(WEIGHT)
    if weights.null_count:
        raise KernelError(
            f"{weights.null_count} changes have no {WEIGHT}",
            hint="give 1 for a row that comes and -1 for one that goes",
        )
    return fixed_width.numbers(weights.cast(pa.int64()))
