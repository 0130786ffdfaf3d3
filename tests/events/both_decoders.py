"""The rows of some data as the compiled decoder gives them, and as the plain one does."""

from penstock.errors import CorruptBatch
from penstock.events.batch import Buffer, decode
from penstock.events.columns import Columns, decode_columns

Row = tuple[
    int | None, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]
]


def rows_of(columns: Columns) -> list[Row]:
    """Offset, timestamp, key, value and headers; Arrow is asked whether its arrays are sound."""
    batch = columns.batch
    batch.validate(full=True)
    times = batch["timestamp"].cast("int64").to_pylist()
    return [
        (
            row["offset"],
            time,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row, time in zip(batch.drop_columns(["timestamp"]).to_pylist(), times, strict=True)
    ]


def compiled(data: Buffer) -> list[Row] | None:
    """None for data that is refused."""
    try:
        return rows_of(decode_columns(data))
    except CorruptBatch:
        return None


def plain(data: Buffer) -> list[Row] | None:
    """None for data that is refused."""
    try:
        return [
            (record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in decode(memoryview(data))
        ]
    except CorruptBatch:
        return None
