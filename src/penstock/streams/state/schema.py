"""What the state of an operator is made of: the columns of its keys and of its values."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InvalidInput, StateMismatch
from penstock.events.compiled import Mask
from penstock.streams.state import cells, fixed_width
from penstock.streams.state.keys import bucket_of

REMOVED = "(removed)"  # the column of a file that says which keys are gone
_KEYS = b"penstock.state.keys"  # in the metadata of a file: how many of its columns are keys
_DUE = b"penstock.state.due"
_SPREAD = b"penstock.state.spread"
_GROUPED = b"penstock.state.grouped"
_COPIED = b"penstock.state.copied"
_FORMAT = "penstock state 1"

FIRST, COUNT = "first", "count"  # of a group: which row it begins with, plus one, and how many


def describe(kind: pa.DataType) -> str:
    """The type as far as values go: without nullability, and without the names of list elements."""
    types = pa.types
    if types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {describe(field.type)}' for field in kind)}>"
    if types.is_map(kind):
        return f"map<{describe(kind.key_type)}, {describe(kind.item_type)}>"
    if types.is_fixed_size_list(kind):
        return f"fixed_size_list<{describe(kind.value_type)}>[{kind.list_size}]"
    if types.is_large_list(kind):
        return f"large_list<{describe(kind.value_type)}>"
    if types.is_list(kind):
        return f"list<{describe(kind.value_type)}>"
    if types.is_null(kind) or fixed_width.dtype_of(kind) is not None or cells.is_plain(kind):
        return str(kind)
    raise InvalidInput(
        f"state cannot hold values of {kind}",
        hint="cast the column to the type that its values have: dictionaries, views, run-end "
        "encoding and extensions are ways to lay values out; a union has to become a struct",
    )


@dataclass(frozen=True)
class StateSchema:
    """Keys and values of any Arrow type, those of a key included that are null.

    Keys are compared by value. As keys, all NaN are one, -0.0 is 0.0, a null equals a null, and
    maps are equal when their entries are, in the same order. Nullability is not enforced.

    `due` names a value that says when a row is due, an int64 of microseconds, null for never. Of
    the keys, only the first `spread` decide the bucket: rows that are equal in them lie together.
    Rows that are equal in the first `grouped` keys can be asked for by these. What is `copied` is
    in every bucket, the same in each: all rows, or those in which the named key is not 0.
    """

    keys: pa.Schema
    values: pa.Schema
    due: str | None = None
    spread: int | None = None  # all keys
    grouped: int | None = None  # they cannot
    copied: bool | str = False

    def __post_init__(self) -> None:
        names = [*self.keys.names, *self.values.names, REMOVED]
        if not self.keys.names:
            raise InvalidInput(
                "state needs a key", hint="use a column with one value to keep a single row"
            )
        if doubles := {name for name in names if names.count(name) > 1}:
            raise InvalidInput(
                f"state has two columns named {min(doubles)!r}", hint="rename one of them"
            )
        if self.due is not None and (
            self.due not in self.values.names or self.values.field(self.due).type != pa.int64()
        ):
            raise InvalidInput(
                f"there is no value {self.due!r} of int64 that says when a row is due",
                hint="add it to the values, in microseconds, null for never",
            )
        if self.spread is not None and not 0 <= self.spread <= len(self.keys):
            raise InvalidInput(
                f"state cannot be spread by {self.spread} of {len(self.keys)} keys",
                hint="name how many of the first keys decide the bucket",
            )
        if self.grouped is not None and not 0 < self.grouped <= len(self.keys):
            raise InvalidInput(
                f"state cannot be grouped by {self.grouped} of {len(self.keys)} keys",
                hint="name how many of the first keys make a group",
            )
        if isinstance(self.copied, str) and (
            self.copied not in self.keys.names
            or not pa.types.is_integer(self.keys.field(self.copied).type)
        ):
            raise InvalidInput(
                f"there is no key {self.copied!r} of integers that says which rows are copied",
                hint="name one that is 0 in the others",
            )
        _ = self.described  # which refuses what cannot be held

    @cached_property
    def described(self) -> dict[str, str]:
        """The type of `key 'customer'` and the like, in order, and what else there is to it."""
        found = {
            f"{role} {field.name!r}": describe(field.type)
            for role, fields in (("key", self.keys), ("value", self.values))
            for field in fields
        }
        if self.due is not None:
            found["due"] = repr(self.due)
        if len(self.spread_keys) < len(self.keys):
            found["spread"] = str(self.spread)
        if self.grouped is not None:
            found["grouped"] = str(self.grouped)
        if self.copied:
            found["copied"] = repr(self.copied)
        return found

    @cached_property
    def groups(self) -> "StateSchema | None":
        """That of the groups, which are kept beside the rows."""
        if self.grouped is None:
            return None
        values = [pa.field(FIRST, pa.int64()), pa.field(COUNT, pa.int64())]
        keys = [pa.field(str(i), each.type) for i, each in enumerate(self.keys)]
        return StateSchema(pa.schema(keys[: self.grouped]), pa.schema(values))

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that differ when the state of one schema cannot be read with the other."""
        text = "\n".join([_FORMAT, *(f"{name}: {kind}" for name, kind in self.described.items())])
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    def differs_from(self, other: "StateSchema") -> str:
        """What changed from the other schema to this one, in a sentence; empty when nothing did."""
        now, before = self.described, other.described
        for name, kind in before.items():
            if name not in now:
                return f"{name} ({kind}) is gone"
            if now[name] != kind:
                return f"{name} was {kind} and is now {now[name]}"
        for name, kind in now.items():
            if name not in before:
                return f"{name} ({kind}) is new"
        for (first, _), second in zip(now.items(), before, strict=True):
            if first != second:
                return f"{first} stands where {second} was"
        return ""

    @cached_property
    def spread_keys(self) -> list[str]:
        """The keys that decide the bucket."""
        return list(self.keys.names[: self.spread])

    def buckets_of(self, keys: pa.RecordBatch, buckets: int) -> NDArray[np.int32]:
        """The bucket of each of these keys, from 0 on; for one that is copied, any."""
        return bucket_of(keys.select(self.spread_keys), buckets)

    def are_copied(self, keys: pa.RecordBatch) -> Mask:
        if not isinstance(self.copied, str):
            return np.full(keys.num_rows, self.copied)
        found: Mask = fixed_width.numbers(keys.column(self.copied)) != 0
        return found

    @cached_property
    def columns(self) -> pa.Schema:
        return pa.schema([*self.keys, *self.values])

    @cached_property
    def file_schema(self) -> pa.Schema:
        """That of a file of the durable form; every column may be null, as in a removed row."""
        fields = [pa.field(field.name, field.type) for field in self.columns]
        metadata = {_KEYS: str(len(self.keys)).encode()}
        if self.due is not None:
            metadata[_DUE] = self.due.encode()
        if self.spread is not None:
            metadata[_SPREAD] = str(self.spread).encode()
        if self.grouped is not None:
            metadata[_GROUPED] = str(self.grouped).encode()
        if self.copied:
            metadata[_COPIED] = json.dumps(self.copied).encode()
        return pa.schema([*fields, pa.field(REMOVED, pa.bool_())], metadata=metadata)

    @cached_property
    def file_head(self) -> bytes:
        """What a file of the durable form begins with."""
        found: bytes = self.file_schema.serialize().to_pybytes()
        return found

    def file_batch(self, rows: pa.RecordBatch, removed: Mask | None = None) -> pa.RecordBatch:
        """Keys and values as a batch of a file; of a removed row, the values count for nothing."""
        gone = np.zeros(rows.num_rows, np.bool_) if removed is None else removed
        flags = fixed_width.from_numbers(pa.bool_(), gone, np.ones(rows.num_rows, np.bool_))
        return pa.RecordBatch.from_arrays([*rows.columns, flags], schema=self.file_schema)

    @classmethod
    def of_file(cls, schema: pa.Schema) -> "StateSchema":
        metadata = schema.metadata
        count = int(metadata[_KEYS])
        fields = list(schema.remove_metadata())[:-1]
        return cls(
            pa.schema(fields[:count]),
            pa.schema(fields[count:]),
            due=metadata[_DUE].decode() if _DUE in metadata else None,
            spread=int(metadata[_SPREAD]) if _SPREAD in metadata else None,
            grouped=int(metadata[_GROUPED]) if _GROUPED in metadata else None,
            copied=json.loads(metadata.get(_COPIED, b"false")),
        )


def check_columns(batch: pa.RecordBatch, fields: pa.Schema, what: str) -> None:
    """Raises StateMismatch unless the batch has these columns, by name, order and type."""
    if batch.schema.equals(fields):
        return
    given = [(field.name, describe(field.type)) for field in batch.schema]
    wanted = [(field.name, describe(field.type)) for field in fields]
    if given != wanted:
        raise StateMismatch(
            f"the {what} given are {_listed(given)}, those of the state {_listed(wanted)}",
            hint="select and cast the columns, in this order",
        )


def _listed(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns) or "none"
