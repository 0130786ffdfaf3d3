"""The topics that Spark is measured on: rows as JSON, by the million, the same on both sides."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from numpy.typing import NDArray

from penstock.errors import LogError
from penstock.events.encoding import encode_columns
from penstock.events.formats import format_for
from penstock.events.schema import parse_schema
from penstock.log import Log
from penstock.log.client.direct import Direct
from penstock.log.writer import Piece

PARTITIONS = 4
ORDERS = "id long, customer long, amount double, country string, ok boolean, at timestamp"
NUMBERS = "key long, number long"
WIDE = "key long, seq long, amount double, at timestamp, name string, street string, city string"

_BLOCK = 250_000  # rows that are made at once
_START = 1_790_000_000_000_000  # microseconds
_ODD = 2_654_435_761  # prime to every number of keys: i * _ODD visits each key once
_WITHIN = 120.0
_WORDS = pa.array(
    [f"{a} {b}" for a in ("upper", "lower", "eastern") for b in ("harbour", "old town")]
)


@dataclass(frozen=True)
class Rows:
    """Rows numbered from 0, each a function of its number; `keys` is how many keys they have.

    The first `keys` rows have a key each, the others have them at random.
    """

    kind: str
    count: int
    keys: int

    @property
    def topic(self) -> str:
        return f"{self.kind}-{self.keys}"

    @property
    def schema(self) -> str:
        return {"orders": ORDERS, "numbers": NUMBERS, "wide": WIDE}[self.kind]

    def blocks(self) -> Iterator[pa.BinaryArray]:
        """The rows as JSON, in their order."""
        schema = parse_schema(self.schema)
        form = format_for("json", schema)
        for start in range(0, self.count, _BLOCK):
            columns = self._columns(np.arange(start, min(start + _BLOCK, self.count)))
            arrays = [columns[name].cast(schema.field(name).type) for name in schema.names]
            yield form.encode(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def _columns(self, numbers: NDArray[np.int64]) -> dict[str, pa.Array]:
        random = np.random.default_rng(int(numbers[0]))
        keys = random.integers(0, self.keys, len(numbers))
        keys = np.where(numbers < self.keys, numbers * _ODD % self.keys, keys)
        at = pa.array(_START + numbers * 1_000).cast(pa.timestamp("us", "UTC"))
        cents = random.integers(0, 100_000, len(numbers)) / 100

        def words() -> pa.Array:
            return _WORDS.take(pa.array(random.integers(0, len(_WORDS), len(numbers))))

        if self.kind == "numbers":
            return {"key": pa.array(keys), "number": pa.array(numbers % 1_000)}
        if self.kind == "wide":
            seq, amount = pa.array(numbers), pa.array(cents)
            row = {"key": pa.array(keys), "seq": seq, "amount": amount, "at": at}
            return row | {"name": words(), "street": words(), "city": words()}
        return {
            "id": pa.array(numbers),
            "customer": pa.array(keys),
            "amount": pa.array(cents),
            "country": words(),
            "ok": pa.array(numbers % 3 == 0),
            "at": at,
        }


def fill_log(log: Log, address: str, rows: Rows) -> None:
    log.create(rows.topic, partitions=PARTITIONS, retention_ms=-1)
    store(address, rows.topic, rows.blocks())


def store(address: str, topic: str, blocks: Iterable[pa.BinaryArray]) -> None:
    """Each partition gets a share of each block. What it takes to sync them is not measured."""
    writer = Direct(address, _WITHIN)
    for turn, values in enumerate(blocks):
        for part in range(PARTITIONS):
            records = pa.RecordBatch.from_arrays([values[part::PARTITIONS]], ["value"])
            for batch in encode_columns(records):
                writer.store([Piece(topic, (turn + part) % PARTITIONS, batch)])
    writer.close()


def fill_kafka(address: str, rows: Rows) -> None:
    with Log.connect(address) as log:
        log.create(rows.topic, partitions=PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for values in rows.blocks():
        for part in range(PARTITIONS):
            batch = [{"value": value} for value in values[part::PARTITIONS].to_pylist()]
            while batch:
                taken = producer.produce_batch(rows.topic, batch, partition=part)
                batch = batch[taken:]
                producer.poll(0.05 if batch else 0)
    if unanswered := producer.flush(_WITHIN):
        raise LogError(f"Kafka did not take {unanswered} of {rows.count} records")
