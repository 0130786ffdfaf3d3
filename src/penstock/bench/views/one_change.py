"""What one changed row costs in a view, however many there are: whole batches of Spark."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.bench.spark_queries import durations

SIZES = (10**4, 10**5, 10**6, 10**7)
KINDS = {
    "sum by customer": "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders "
    "GROUP BY customer",
    "orders with their customers": "SELECT orders.id, amount, name FROM orders "
    "JOIN customers ON orders.customer = customers.id",
    "the 100 largest": "SELECT id, amount FROM orders ORDER BY amount DESC LIMIT 100",
}

_LOADS = 10
_CHANGES, _WARM_UP = 20, 5
_OF_EACH = 10  # orders of a customer


def milliseconds(session: SparkSession, kind: str, orders: int) -> list[int]:
    """Of batches in each of which one order has another amount, after so many are there."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        checkpoint = f"{folder}/checkpoint"
        _write(Path(folder), orders)
        tables = {
            name: ps.changes(_read(session, f"{folder}/{name}"), "id", checkpoint=checkpoint)
            for name in ("orders", "customers")
        }
        view = ps.sql(KINDS[kind], checkpoint=checkpoint, **tables)
        took = durations(view.writeStream.format("noop"), checkpoint)
    return took[_LOADS + _WARM_UP :]


def _read(session: SparkSession, folder: str) -> DataFrame:
    schema = session.read.parquet(folder).schema
    return session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)


def _write(folder: Path, orders: int) -> None:
    random = np.random.default_rng(1)
    customers = np.arange(max(1, orders // _OF_EACH))
    names = np.char.add("customer ", customers.astype("U10"))
    _file(folder / "customers", 0, {"id": customers, "name": names})
    for number, some in enumerate(np.array_split(random.permutation(orders), _LOADS)):
        _file(folder / "orders", number, _orders(some, random))
    for number in range(_CHANGES):
        changed = random.integers(0, orders, 1)
        _file(folder / "orders", _LOADS + number, _orders(changed, random))


def _orders(numbers: np.typing.NDArray[np.int64], random: np.random.Generator) -> dict[str, object]:
    amounts = random.integers(0, 10**9, len(numbers)) / 100
    return {"id": numbers, "customer": numbers // _OF_EACH, "amount": amounts}


def _file(folder: Path, number: int, columns: dict[str, object]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:03}.parquet"
    pq.write_table(pa.table(columns), path)
    os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which they are read
