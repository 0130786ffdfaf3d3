"""An app of three nodes in a process of its own, orders that keep coming, and the right answer."""

import json
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock import Log, Record, clock
from penstock.runtime.folders import app_folder
from penstock.runtime.status import AppStatus
from penstock.streams.source.topic import open_topic
from penstock.testing import wait_until
from penstock.testing.child import Child

APP = """
import sys

import penstock as ps

data, log, master = sys.argv[1:]
app = ps.App(
    "shop",
    data=data,
    log=log or None,
    spark=master,
    buckets=2,
    settings={
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
    },
)
app.stream(
    "orders",
    "id long, customer long, amount long, at timestamp",
    event_time=ps.EventTime("at", wait="1 minute"),
    max_rows=2_000,
)

@app.derive("kept", partitions=2)
def kept(orders):
    return orders.where("amount % 10 <> 0")

@app.derive("totals", key="customer")
def totals(kept):
    return ps.aggregate(kept, by="customer", total=ps.sum("amount"), n=ps.count())

@app.derive("regions", key="region")
def regions(totals):
    by_region = totals.selectExpr("customer % 3 AS region", "total", "n", "_weight", "_time")
    return ps.aggregate(by_region, by="region", total=ps.sum("total"), n=ps.sum("n"))

if __name__ == "__main__":
    sys.exit(app.run())
"""
TOPICS = ("kept", "totals", "regions")  # each is read by the node of the next
PARTITIONS = 2
CUSTOMERS = 40
_AT_ONCE = 10
_PAUSE = 0.1
_BEGIN = 1_790_000_000_000

Row = dict[str, Any]


class Shop:
    """The app's process, which can be started again; `log` and `master` are addresses.

    Its data folder is `data` in `folder`; with `joined` that is the log's too, which is then found
    there, and read from its files.
    """

    def __init__(
        self, folder: Path, log: str, master: str = "local[2]", *, joined: bool = False
    ) -> None:
        self._file = folder / "shop.py"
        self._file.write_text(APP)
        self._data = folder / "data"
        self._arguments = (str(self._data), "" if joined else log, master)
        self.log = log
        self.process = self._started()

    def _started(self) -> Child:
        return Child((sys.executable, str(self._file), *self._arguments))

    def restart(self) -> None:
        self.process.close()
        self.process = self._started()

    def stop(self) -> int:
        return self.process.stop(within=60)

    def kept(self, what: str) -> Path:
        """Where the query that all nodes run in keeps its offsets, commits or state."""
        home = app_folder(self._data, "shop")
        return home / "@state" if what == "state" else home / "@queries" / "main" / what

    def await_end(self, within: float) -> None:
        """Until every node has read all that its input holds; the app must be running."""
        for node, topic in zip(TOPICS, ("orders", *TOPICS), strict=False):
            ends = ends_of(self.log, topic)
            self.process.wait_until(
                lambda node=node, ends=ends: self._has_read(node, ends),  # type: ignore[misc]
                within=within,
                what=f"{node} at its end",
            )

    def _has_read(self, node: str, ends: list[int]) -> bool:
        status = AppStatus.read(app_folder(self._data, "shop"))
        told = [each for each in status.nodes if each.name == node] if status else []
        if not told or not told[0].inputs:
            return False
        # Marks of the clock follow the last rows, so it may be further by now.
        reached = told[0].inputs[0].next
        return all(reached.get(str(number), 0) >= end for number, end in enumerate(ends))


class Orders(threading.Thread):
    """Appends orders, in order of their time in each partition, until it is stopped."""

    def __init__(self, log: str, first: int) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._dice = random.Random(first)
        self._stop_asked = threading.Event()
        self.count = first

    def run(self) -> None:
        with Log.connect(self._log) as log:
            while not self._stop_asked.wait(_PAUSE):
                numbers = range(self.count, self.count + _AT_ONCE)
                log.append("orders", [self._order(number) for number in numbers])
                self.count = numbers.stop

    def _order(self, number: int) -> Record:
        order = {
            "id": number,
            "customer": self._dice.randrange(CUSTOMERS),
            "amount": self._dice.randrange(1, 1_000),
            "at": _BEGIN + number * 100 - self._dice.randrange(30_000),
        }
        return Record(value=json.dumps(order).encode(), partition=self._dice.randrange(PARTITIONS))

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


@contextmanager
def orders_coming(log: str, *, first: int = 0) -> Iterator[Orders]:
    """Orders numbered from `first` come until the block ends."""
    orders = Orders(log, first)
    orders.start()
    try:
        yield orders
    finally:
        orders.stop()


def create_orders(log: str) -> None:
    with Log.connect(log) as opened:
        opened.create("orders", partitions=PARTITIONS, retention_ms=-1)


def ends_of(log: str, topic: str) -> list[int]:
    found = open_topic(log, topic)
    return [found.bounds(number).end for number in range(found.partitions())]


def check_answer(log: str, orders: int) -> None:
    """What the app wrote is what a batch over all orders gives: nothing twice, nothing lost."""
    rows = [row for _, row in _records(log, "orders") if row is not None]
    assert Counter(row["id"] for row in rows) == Counter(range(orders))
    wanted = [row for row in rows if row["amount"] % 10]

    copies = [row for _, row in _records(log, "kept") if row is not None]
    assert Counter(row["id"] for row in copies) == Counter(row["id"] for row in wanted)

    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    regions: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in wanted:
        for table, key in ((totals, row["customer"]), (regions, row["customer"] % 3)):
            table[key][0] += row["amount"]
            table[key][1] += 1
    assert _last(log, "totals", "customer") == totals
    assert _last(log, "regions", "region") == regions


def _last(log: str, topic: str, key: str) -> dict[int, list[int]]:
    """The table that the topic is, each of whose rows has replaced an older one."""
    table: dict[int, list[int]] = {}
    for _, row in _records(log, topic):
        if row is None:
            continue  # a mark of the clock: no customer ever disappears
        before = table.get(row[key], [0, 0])
        assert row["n"] > before[1], f"{topic} has {row} after {before}"
        table[row[key]] = [row["total"], row["n"]]
    return table


def _records(log: str, topic: str) -> Iterator[tuple[bytes | None, Row | None]]:
    found = open_topic(log, topic)
    for number in range(found.partitions()):
        start, end = found.bounds(number)
        for batch in found.columns(number, start, end, ["key", "value"]):
            for key, value in zip(batch["key"], batch["value"], strict=True):
                content = value.as_py()
                yield key.as_py(), None if content is None else json.loads(content)


def await_moment(seconds: float) -> None:
    """Lets some time pass, of a length that was chosen at random: a fault comes at any time."""
    moment = clock.monotonic() + seconds
    wait_until(lambda: clock.monotonic() >= moment, within=seconds + 60)
