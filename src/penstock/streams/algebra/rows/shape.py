"""What the rows are like that are summed up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from penstock.errors import InvalidInput, UnknownName
from penstock.streams.algebra.changes import OFFSET, PARTITION, WEIGHT


@dataclass(frozen=True)
class RowShape:
    """Rows with a `_weight` are changes of a table, others are all there to stay."""

    schema: pa.Schema
    time: str | None = None

    @property
    def weighted(self) -> bool:
        return WEIGHT in self.schema.names

    @cached_property
    def order(self) -> Mapping[str, str]:
        """The columns by which rows are ordered: event time, and of a stream partition and offset.

        Those two say of a change where it stands in its log, not where the row does that it takes
        back.
        """
        order = {} if self.time is None else {"time": self.time}
        if not self.weighted:
            places = {"partition": PARTITION, "offset": OFFSET}
            order |= {word: name for word, name in places.items() if name in self.schema.names}
        return order

    def kind_of(self, column: str) -> pa.DataType:
        return column_type(self.schema, column)


def visible(schema: pa.Schema) -> list[pa.Field]:
    """The columns that are not penstock's own, which begin with `_`; each may be null."""
    return [pa.field(each.name, each.type) for each in schema if each.name[0] != "_"]


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Raises InvalidInput for what is no name."""
    names = list(columns) if isinstance(columns, list | tuple) else [columns]
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(
                f"{name!r} is no name of a column", hint='give it as text, by="customer"'
            )
    return tuple(names)  # type: ignore[arg-type]


def check_result_names(names: Sequence[str]) -> None:
    """Raises InvalidInput for what cannot be the columns of a result."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"the result would have the column {name!r} twice",
                hint="name one of them otherwise",
            )
        if name.startswith("_"):
            raise InvalidInput(
                f"{name!r} cannot be a column of the result",
                hint="names that begin with _ are taken",
            )


def column_type(schema: pa.Schema, column: str) -> pa.DataType:
    if column not in schema.names:
        raise UnknownName(
            f"there is no column {column!r}", hint=f"the rows have {', '.join(schema.names)}"
        )
    return schema.field(column).type
