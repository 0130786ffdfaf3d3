"""The backlog of orders that apps are measured with: as JSON for the log, as Parquet for Flink."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Producer

from penstock.bench.apps.cases import PARTITIONS, SCHEMA, STREAM, TABLE, Case
from penstock.bench.apps.client import APART_MS, CUSTOMERS, ITEMS, LIVE_AMOUNT, SHOPS, START_MS
from penstock.errors import LogError
from penstock.events.compiled import Numbers
from penstock.events.formats import format_for
from penstock.events.schema import parse_schema

FIRST = 1_000_000  # the id of the first order: live ones come before and after

_COUNTRIES = 20
_WITHIN = 120.0

Totals = dict[str, tuple[float, int]]
"""Of each customer the sum of the amounts, and the highest id."""


def customers() -> pa.Table:
    names = [f"c{number}" for number in range(CUSTOMERS)]
    return pa.table({"id": names, "country": [f"land {n % _COUNTRIES}" for n in range(CUSTOMERS)]})


def customer_rows() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = customers().to_pylist()
    return rows


@dataclass(frozen=True)
class Backlog:
    rows: int

    @cached_property
    def table(self) -> pa.Table:
        random = np.random.default_rng(1)
        numbers = np.arange(FIRST, FIRST + self.rows)
        # Whole amounts, so that sums are exact in any order.
        columns = {
            "id": pa.array(numbers),
            "customer": _named("c", random.integers(0, CUSTOMERS, self.rows)),
            "shop": _named("shop ", random.integers(0, SHOPS, self.rows)),
            "item": _named("item ", random.integers(0, ITEMS, self.rows)),
            "amount": pa.array(random.integers(0, 1_000, self.rows).astype(np.float64)),
            "at": pa.array(START_MS + numbers * APART_MS).cast(pa.timestamp("ms", "UTC")),
        }
        schema = parse_schema(SCHEMA)
        return pa.table({name: columns[name].cast(schema.field(name).type) for name in columns})

    @cached_property
    def values(self) -> pa.BinaryArray:
        schema = parse_schema(SCHEMA)
        batch = self.table.combine_chunks().to_batches()[0]
        return format_for("json", schema).encode(batch)

    def send(self, address: str) -> None:
        """Appends all to the topic, in their order in each partition."""
        producer = Producer(
            {
                "bootstrap.servers": address,
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,  # a server that goes away is told of elsewhere
            }
        )
        for part in range(PARTITIONS):
            batch = [{"value": value} for value in self.values[part::PARTITIONS].to_pylist()]
            while batch:
                taken = producer.produce_batch(STREAM, batch, partition=part)
                batch = batch[taken:]
                producer.poll(0.05 if batch else 0)
        if unanswered := producer.flush(_WITHIN):
            raise LogError(f"the log did not take {unanswered} of {self.rows} orders")

    def write(self, folder: Path) -> None:
        """As Parquet for Flink: all orders, one order and the customers, in a folder each; the
        orders in a file for each of its readers."""
        for name, table in (("all", self.table), ("one", self.table[:1])):
            (folder / name).mkdir(parents=True)
            for part in range(PARTITIONS):
                some = table.take(pa.array(np.arange(part, len(table), PARTITIONS)))
                pq.write_table(some, folder / name / f"{part}.parquet", coerce_timestamps="ms")
        (folder / TABLE).mkdir()
        pq.write_table(customers(), folder / TABLE / "0.parquet")

    def totals(self, case: Case, live: Counter[str]) -> Totals:
        """What the last view of an app has to hold after the backlog, where so many live orders
        of each customer came before it."""
        kept = self.table.filter(pc.greater(self.table["amount"], case.above))
        grouped = kept.group_by("customer").aggregate([("amount", "sum"), ("id", "max")])
        found = {
            row["customer"]: (row["amount_sum"] + case.added, row["id_max"])
            for row in grouped.to_pylist()
        }
        for customer, count in live.items():
            total, last = found.get(customer, (float(case.added), 0))
            found[customer] = (total + count * LIVE_AMOUNT, last)
        return found


def _named(prefix: str, numbers: Numbers) -> pa.Array:
    return pa.array(np.char.add(prefix, numbers.astype("U8")))
