"""What every format offers."""

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Numbers

NO_VALUE = "the record has no value"


class Refused(NamedTuple):
    position: int
    detail: str


class Decoded(NamedTuple):
    """The rows that parsed, in the schema's fields and types, and what became of the others.

    `kept` has the rows' positions among the values, ascending, or is None when all are there;
    `refused` has the other positions, ascending too.
    """

    rows: pa.RecordBatch
    kept: Numbers | None
    refused: list[Refused]


class Format(Protocol):
    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Never raises for what is in the values."""

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        """A value for each row, from which `decode` makes the same row.

        Raises InvalidInput for what the format cannot hold.
        """


def without_nulls(values: pa.BinaryArray) -> Decoded:
    """The values that are there, as rows of one column; the others are refused."""
    kept, refused = None, []
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(~missing)
        refused = [Refused(position, NO_VALUE) for position in np.flatnonzero(missing).tolist()]
        values = values.drop_null()
    return Decoded(pa.RecordBatch.from_arrays([values], ["value"]), kept, refused)


def the_column(rows: pa.RecordBatch) -> pa.Array:
    """The only column of some rows, which must have no null: as a value, that would delete."""
    if rows.column(0).null_count:
        raise InvalidInput(
            f"a null in column {rows.schema.names[0]!r} has no form as a value",
            hint="filter such rows out, or write them as json",
        )
    return rows.column(0)
