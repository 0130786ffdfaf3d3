"""Rows of which a value cannot be computed, as records of a topic beside that of the node.

{"reason": "division by zero", "detail": "division by zero in `total / n`",
 "topic": "orders", "partition": 0, "offset": 17, "operator": null, "batch": 4,
 "row": "{\"customer\": \"ada\", \"total\": 6.5, \"n\": 0}"}

A row that does not come straight from a topic has the operator that made it instead, as
"totals/0c1f-aggregate". With the number of the batch, the topics and the state can be looked at.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import pyarrow as pa

from penstock.events.encoding import encode_columns
from penstock.streams.algebra.changes import OFFSET, PARTITION, WEIGHT

# What another node reads them as. The columns that rejected rows of a stream have too are called
# the same there.
REJECTED_ROWS = pa.schema(
    {
        "reason": pa.string(),
        "detail": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "operator": pa.string(),
        "batch": pa.int64(),
        "row": pa.string(),
    }
)
# What is longer is cut, so that the record fits the topic whatever characters these are.
_MOST_CHARACTERS = 100_000  # of one row
_MOST_IN_DETAIL = 10_000


class Rejection(NamedTuple):
    reason: str
    value: bytes


class Reason(NamedTuple):
    """`kind` is what rejected rows are counted by, of which there are few; `detail` may name the
    expression or the value."""

    kind: str
    detail: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Of what a selection says, as "division by zero in `a / b`"."""
        return cls(text.split(" in `")[0], text)


class Maker(NamedTuple):
    """Where rows come from: a topic, or an operator of a node; in which batch they were read or
    made."""

    batch: int
    topic: str | None = None
    operator: str | None = None


def rejected_topic(topic: str) -> str:
    """Where the rejected rows of the node stand that writes this topic."""
    return f"{topic}-rejected"


def rejection(rows: pa.RecordBatch, place: int, reason: Reason, made: Maker) -> Rejection | None:
    """None for a change that retracts a row: it was rejected when it appeared."""
    row: dict[str, Any] = rows.slice(place, 1).to_pylist()[0]
    if row.get(WEIGHT, 1) < 0:
        return None
    columns = {name: value for name, value in row.items() if not name.startswith("_")}
    content = {
        "reason": reason.kind,
        "detail": reason.detail[:_MOST_IN_DETAIL],
        "topic": made.topic,
        "partition": row.get(PARTITION),
        "offset": row.get(OFFSET),
        "operator": made.operator,
        "batch": made.batch,
        "row": json.dumps(columns, default=str)[:_MOST_CHARACTERS],
    }
    return Rejection(reason.kind, json.dumps(content).encode())


def encode_rejections(rejections: Sequence[Rejection]) -> bytes:
    values = pa.array([each.value for each in rejections], pa.binary())
    return b"".join(encode_columns(pa.RecordBatch.from_arrays([values], ["value"])))
