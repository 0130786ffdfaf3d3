"""Nodes that are added, changed and removed while events come and the driver is killed: each is
what a batch gives, and views that belong together never show different moments."""

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Log, Position, Record, clock
from penstock.errors import PenstockError
from penstock.runtime.views import Views
from penstock.serve.reading import is_kept, opened
from penstock.testing import wait_until
from tests.cli.running import Running, ended_server

PATIENT = 240.0
SPARK = ("--spark", "local[2]")

BASE = """
import penstock as ps

app = ps.App("shop", buckets=2)
app.stream("orders", "id long, customer string", partitions=2, max_rows=500)

app.view("counts", sql="SELECT customer, count(*) AS n FROM orders GROUP BY customer")
app.view("sizes", sql="SELECT n, count(*) AS customers FROM counts GROUP BY n")
"""
ODD = """
app.view("odd", sql="SELECT customer, count(*) AS n FROM orders WHERE id % 2 = 1 GROUP BY customer")
"""
THIRD = ODD.replace("id % 2 = 1", "id % 3 = 0")
LARGEST = """
app.view("largest", sql="SELECT customer, n FROM counts ORDER BY n DESC, customer LIMIT 3")
"""
# The file, and what it is run with.
VERSIONS: list[tuple[str, tuple[str, ...]]] = [
    (BASE, ()),
    (BASE + ODD, ()),
    (BASE + ODD + LARGEST, ()),
    (BASE + THIRD + LARGEST, ("--rebuild", "odd")),
    (BASE + LARGEST, ()),
]


def order(number: int, customer: str) -> Record:
    row = {"id": number, "customer": customer}
    return Record(key=customer.encode(), value=json.dumps(row).encode())


class Orders(threading.Thread):
    """Keep coming until it is told to stop."""

    def __init__(self, data: Path) -> None:
        super().__init__(daemon=True)
        self._data = data
        self._stop_asked = threading.Event()
        self._dice = random.Random(7)
        self.customers: list[str] = []
        self.last: list[Position] = []

    def run(self) -> None:
        with Log.join(self._data) as log:
            while not self._stop_asked.wait(0.05):
                some = [f"c{self._dice.randrange(9)}" for _ in range(5)]
                first = len(self.customers)
                self.last = log.append("orders", map(order, range(first, first + 5), some))
                self.customers += some

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class Reader(threading.Thread):
    """Looks at two views at once, again and again; one is made of the other."""

    def __init__(self, views: Views) -> None:
        super().__init__(daemon=True)
        self._views = views
        self._stop_asked = threading.Event()
        self.looks = 0
        self.different: list[tuple[object, object]] = []

    def run(self) -> None:
        while not self._stop_asked.wait(0.01):
            try:
                if not is_kept(self._views.path):
                    continue
                with opened(self._views.path) as reader:
                    if not {"counts", "sizes"} <= {each.name for each in reader.views()}:
                        continue
                    [(orders,)] = reader.select("SELECT sum(n) FROM counts")[1]
                    [(same,)] = reader.select("SELECT sum(n * customers) FROM sizes")[1]
            except PenstockError:
                continue
            self.looks += 1
            if orders != same:
                self.different.append((orders, same))

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


@contextmanager
def beside(*threads: Orders | Reader) -> Iterator[None]:
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nodes_come_change_and_go_while_the_driver_is_killed(tmp_path: Path) -> None:
    data = tmp_path / "penstock-data"
    file, views, dice = tmp_path / "app.py", Views(data, "shop"), random.Random()
    with ended_server(data):
        with Log.join(data) as log:
            log.create("orders", partitions=2)
        orders, reader = Orders(data), Reader(views)
        with beside(orders, reader):
            for number, (text, options) in enumerate(VERSIONS):
                file.write_text(text)
                arguments = ("run", "app.py", "--port", "0", *SPARK, *options)
                with Running(*arguments, cwd=tmp_path) as app:
                    seen(app, views, len(orders.customers))
                    if number < len(VERSIONS) - 1:
                        pause(dice.uniform(0, 3))
                        os.kill(app.pid, signal.SIGKILL)
                        app.wait(PATIENT)
                        continue
                    orders.stop()
                    views.wait(["counts", "sizes", "largest"], orders.last, "120s")
                    assert app.interrupt(within=PATIENT) == 0, app.text
        truth = Counter(orders.customers)
        assert {row["customer"]: row["n"] for row in views["counts"].rows()} == truth
        sizes = {row["n"]: row["customers"] for row in views["sizes"].rows()}
        assert sizes == Counter(truth.values())
        first = sorted(truth.items(), key=lambda each: (-each[1], each[0]))[:3]
        assert {(row["customer"], row["n"]) for row in views["largest"].rows()} == set(first)
        assert "odd" not in views
    assert reader.looks > 50
    assert not reader.different, reader.different[:5]


def seen(app: Running, views: Views, orders: int) -> None:
    """Until the app shows so many orders."""

    def has_come() -> bool:
        try:
            return sum(int(row["n"]) for row in views["counts"].rows()) >= orders
        except PenstockError:
            return False

    wait_until(has_come, within=PATIENT, what=f"{orders} orders in counts: {app.text}")


def pause(seconds: float) -> None:
    """So that the kill comes at any moment of what happens meanwhile."""
    deadline = clock.monotonic() + seconds
    wait_until(lambda: clock.monotonic() >= deadline, within=seconds + 10)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_node_that_is_added_catches_up_and_joins(tmp_path: Path) -> None:
    data = tmp_path / "penstock-data"
    file, views = tmp_path / "app.py", Views(data, "shop")
    customers = [f"c{number % 7}" for number in range(3_000)]
    with ended_server(data):
        with Log.join(data) as log:
            log.create("orders", partitions=2)
            last = log.append("orders", map(order, range(len(customers)), customers))
        for text in (BASE, BASE + ODD + LARGEST):
            file.write_text(text)
            with Running("run", "app.py", "--port", "0", *SPARK, cwd=tmp_path) as app:
                names = [name for name in ("counts", "odd", "largest") if f'"{name}"' in text]
                wait_until(lambda n=names: set(n) <= set(views), within=PATIENT, what=app.text)  # type: ignore[misc]
                try:
                    views.wait(names, last, "120s")
                except PenstockError as behind:
                    pytest.fail(f"{behind.hint}: {app.text}")
                if text != BASE:
                    wait_until(lambda: queries(views) == {"main"}, within=PATIENT, what=app.text)
                assert app.interrupt(within=PATIENT) == 0, app.text
        odd = Counter(customers[1::2])
        assert {row["customer"]: row["n"] for row in views["odd"].rows()} == odd


def queries(views: Views) -> set[str]:
    return {node.query for node in views.status().nodes}
