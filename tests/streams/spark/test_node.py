"""Nodes in chains: crashes, clocks, rows that cannot be rows, and topics that are not there."""

import json
import shutil
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import App, Log, clock
from penstock.errors import InvalidSchema, TopicNotFound
from penstock.runtime.folders import app_folder
from penstock.runtime.installation import installed
from penstock.runtime.running import Supervisor
from penstock.runtime.status import AppStatus, NodeStatus
from penstock.streams.source.punctuation import read_punctuation
from penstock.streams.spark.crash import AFTER_COMMIT, BEFORE_COMMIT, IN_WORKER
from penstock.testing import wait_until
from penstock.testing.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WITHIN = 240.0  # on a machine that is busy with other things; seconds where it is not
ORDER = "id long, customer long, amount long, at timestamp"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)

Row = dict[str, Any]


def order(number: int, customer: int = 0, *, after: timedelta = timedelta()) -> Row:
    at = NOON + timedelta(seconds=number) + after
    return {"id": number, "customer": customer, "amount": number * 7 % 50, "at": at}


def chain() -> App:
    """Orders, totals of customers, how many customers have so many orders, and a count of those.

    The last two are of tables, in which rows change and disappear.
    """
    app = App("chain")
    app.stream("orders", ORDER, event_time=ps.EventTime("at", wait="10s", correct_for="1h"))

    @app.derive("kept")
    def kept(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 0")

    @app.derive("totals", key="customer")
    def totals(kept: DataFrame) -> DataFrame:
        return ps.aggregate(kept, by="customer", total=ps.sum("amount"), n=ps.count())

    @app.derive("sizes", key="n")
    def sizes(totals: DataFrame) -> DataFrame:
        return ps.aggregate(totals, by="n", customers=ps.count())

    @app.derive("spread", key="customers")
    def spread(sizes: DataFrame) -> DataFrame:
        return ps.aggregate(sizes, by="customers", sizes=ps.count())

    return app


def expected(orders: list[Row]) -> dict[str, list[Row]]:
    """What the tables of the chain are, of these orders."""
    totals: dict[int, list[int]] = defaultdict(list)
    for row in orders:
        if row["amount"] > 0:
            totals[row["customer"]].append(row["amount"])
    sizes = Counter(len(amounts) for amounts in totals.values())
    spread = Counter(sizes.values())
    return {
        "totals": [
            {"customer": customer, "total": sum(amounts), "n": len(amounts)}
            for customer, amounts in sorted(totals.items())
        ],
        "sizes": [{"n": n, "customers": count} for n, count in sorted(sizes.items())],
        "spread": [{"customers": n, "sizes": count} for n, count in sorted(spread.items())],
    }


def promises(log: Log, topic: str) -> list[int]:
    """What each partition was told last, in microseconds."""
    found = []
    for number in range(len(log.describe(topic).partitions)):
        said = [read_punctuation(each.headers) for each in log.read(topic, number, 0)]
        found.append([promise[1] for promise in said if promise][-1])
    return found


def test_a_chain_that_crashes_and_whose_clock_moves(spark: SparkSession) -> None:
    orders = [order(number, number % 7) for number in range(300)]
    with Run(chain(), spark=spark, max_rows=100) as run:
        # The first node dies in its first batch, others when they have state.
        run.crash(BEFORE_COMMIT, "kept")
        run.crash(IN_WORKER, "totals")
        run.feed("orders", orders[:150])
        run.drain()
        run.crash(AFTER_COMMIT, "kept")
        run.crash(AFTER_COMMIT, "totals")
        run.crash(BEFORE_COMMIT, "sizes")
        run.crash(IN_WORKER, "sizes")
        run.feed("orders", orders[150:])
        run.drain()

        assert run.crashes == 6
        assert Counter(row["id"] for row in run.topic("kept")) == Counter(
            row["id"] for row in orders if row["amount"] > 0
        )
        for node, rows in expected(orders).items():
            assert run.view(node) == rows, node
            assert sorted(map(repr, run.batch(node))) == sorted(map(repr, rows)), node

        # What the source is told goes down the chain; no row carries it.
        later = NOON + timedelta(hours=3)
        run.advance(later)
        run.drain()
        micros = round(later.timestamp() * 1_000_000)
        for topic in run.app.nodes:
            assert set(promises(run.log, topic)) == {micros}, topic

        # So a straggler still counts in every node, and one that is too late in none.
        straggler = order(300, 8, after=timedelta(hours=2, minutes=30))
        late = order(301, 8, after=timedelta(hours=1))
        # And a change takes rows away that happened long before it: no table may miss that.
        change = order(302, 3, after=timedelta(hours=3))
        run.feed("orders", [straggler, late, change], partition=0)
        run.drain()
        for node, rows in expected([*orders, straggler, change]).items():
            assert run.view(node) == rows, node
            assert run.rejected(node) == [], node
        (refused,) = run.rejected("orders")
        assert (refused["reason"], refused["event_time"]) == ("late", late["at"])


BROKEN = [
    (b"not json", "unparsable"),
    (b'{"id": "seven", "at": "2026-01-31T12:00:00Z"}', "unparsable"),
    (b'{"id": 1, "at": "2026-01-31T12:00:0', "unparsable"),
    (b"\xff\xfe", "unparsable"),
    (b'{"id": 2}', "missing"),
    (b'{"id": 3, "at": "2099-01-01T00:00:00Z"}', "future"),
    (b'{"id": 4, "at": "2026-01-31T09:00:00Z"}', "late"),
]


def test_tables_and_rejected_rows(spark: SparkSession) -> None:
    app = App("inputs")
    app.stream("orders", ORDER, event_time=ps.EventTime("at", wait="10s"))
    app.stream("clicks", "id long")
    app.table("customers", "id long, country string", key="id")
    app.rejected("orders")

    @app.derive("complaints", key="reason")
    def complaints(rejected_orders: DataFrame) -> DataFrame:
        return ps.aggregate(rejected_orders, by="reason", n=ps.count())

    @app.derive("countries", key="country")
    def countries(customers: DataFrame) -> DataFrame:
        return ps.aggregate(customers, by="country", n=ps.count())

    @app.derive("together")
    def together(clicks: DataFrame, orders: DataFrame) -> DataFrame:
        # In another order than the parameters.
        return orders.select("id").union(clicks.select("id"))

    with Run(app, spark=spark) as run:
        run.feed("orders", [order(0), order(1)], partition=1)
        run.feed("orders", [value for value, _ in BROKEN], partition=1)
        run.feed("orders", [order(2)], partition=1)
        run.feed("clicks", [{"id": 100 + number} for number in range(5)])
        for number, country in enumerate(("DE", "DE", "FR", "PE")):
            run.upsert("customers", id=number, country=country)
        run.drain()

        found = run.rejected("orders")
        assert [(row["value"], row["reason"]) for row in found] == BROKEN
        assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
            ("orders", 1, 2 + number) for number in range(len(BROKEN))
        ]
        assert all(row["detail"] for row in found)
        reasons = Counter(reason for _, reason in BROKEN)
        assert run.view("complaints") == [
            {"reason": reason, "n": n} for reason, n in sorted(reasons.items())
        ]
        together_now = sorted(row["id"] for row in run.topic("together"))
        assert together_now == [0, 1, 2, 100, 101, 102, 103, 104]
        assert run.view("countries") == [
            {"country": "DE", "n": 2},
            {"country": "FR", "n": 1},
            {"country": "PE", "n": 1},
        ]

        run.delete("customers", 3)
        run.delete("customers", 77)  # who was never there
        run.upsert("customers", id=0, country="FR")
        run.upsert("customers", id=0, country="FR")
        run.feed("clicks", [{"id": 105}])
        run.crash(AFTER_COMMIT, "countries")
        run.drain()
        assert run.crashes == 1
        assert run.view("countries") == [{"country": "DE", "n": 1}, {"country": "FR", "n": 2}]
        assert sorted(run.batch("countries"), key=lambda row: row["country"]) == run.view(
            "countries"
        )
        assert len(run.topic("together")) == len(together_now) + 1


def test_a_schema_that_does_not_parse_is_refused_at_once() -> None:
    with pytest.raises(InvalidSchema, match="lnog"):
        App("shop").stream("orders", "id lnog")


def test_a_missing_topic_is_named(spark: SparkSession, tmp_path: Path) -> None:
    app = counting(tmp_path, spark)

    with pytest.raises(TopicNotFound, match="'orders'") as raised:
        app.run(once=True)

    assert "partitions=" in raised.value.hint
    told = AppStatus.read(app_folder(tmp_path, "shop"))
    assert told is not None
    assert told.stopped
    assert "orders" in told.error


def counting(data: Path, spark: SparkSession, name: str = "shop", **aggregates: Any) -> App:
    app = App(name, data=data, spark=spark, buckets=2)
    app.stream("orders", ORDER)

    @app.derive("totals", key="customer")
    def totals(orders: DataFrame) -> DataFrame:
        return ps.aggregate(orders, by="customer", **(aggregates or {"n": ps.count()}))

    return app


def append(log: Log, topic: str, rows: list[Row]) -> None:
    texts = [json.dumps(row | {"at": row["at"].isoformat()}) for row in rows]
    log.append(topic, [ps.Record(value=text.encode(), partition=0) for text in texts])


@contextmanager
def served(data: Path) -> Iterator[Log]:
    with Log.open(data) as log:
        log.serve()  # type: ignore[attr-defined]
        yield log


def table(log: Log, topic: str, key: str) -> dict[Any, Row]:
    """What a topic of upserts says now, by its key."""
    rows = {}
    for number in range(len(log.describe(topic).partitions)):
        for record in log.read(topic, number, 0):
            if record.value is not None:
                row = json.loads(record.value)
                rows[row.pop(key)] = row
    return rows


def failure(data: Path, app: str) -> str:
    told = AppStatus.read(app_folder(data, app))
    assert told is not None
    (node,) = told.failing
    assert node.retry_at is None  # it would be refused again
    return node.error


def test_changed_code_is_refused_until_somebody_decides(
    spark: SparkSession, tmp_path: Path
) -> None:
    with served(tmp_path) as log:
        log.create("orders", partitions=1)
        append(log, "orders", [order(number, number % 2) for number in range(10)])
        assert counting(tmp_path, spark).run(once=True) == 0
        counts = {0: {"n": 5}, 1: {"n": 5}}
        assert table(log, "totals", "customer") == counts

        append(log, "orders", [order(10, 0)])
        changed = counting(tmp_path, spark, n=ps.count(), latest=ps.max("id"))
        assert changed.run(once=True) == 1
        said = failure(tmp_path, "shop")
        assert "NodeChanged" in said
        assert "latest" in said
        assert "--rebuild totals" in said
        assert "--reset totals" in said
        assert table(log, "totals", "customer") == counts  # nobody touched it

        # Beside the old one, which stays as it is.
        assert changed.run(once=True, rebuild=["totals"]) == 0
        latest = {0: {"n": 6, "latest": 10}, 1: {"n": 5, "latest": 9}}
        assert table(log, "totals-v2", "customer") == latest
        assert table(log, "totals", "customer") == counts

        # Instead of the old one.
        again = counting(tmp_path, spark, first=ps.min("id"))
        assert again.run(once=True, reset=["totals"]) == 0
        assert table(log, "totals-v2", "customer") == {0: {"first": 0}, 1: {"first": 1}}

        # What another app has begun is not gone on with.
        apps = tmp_path / "apps"
        shutil.copytree(apps / "shop", apps / "copy")
        before = contents(apps / "copy" / "totals")
        assert counting(tmp_path, spark, "copy", first=ps.min("id")).run(once=True) == 1
        said = failure(tmp_path, "copy")
        assert "ForeignCheckpoint" in said
        assert "'shop'" in said
        assert contents(apps / "copy" / "totals") == before

        # What another app has written is not mixed with.
        assert counting(tmp_path, spark, "other").run(once=True) == 1
        assert "TopicExists: topic 'totals' has" in failure(tmp_path, "other")
        assert table(log, "totals", "customer") == counts


def test_a_node_that_runs_alone_is_built_anew_from_the_beginning(
    spark: SparkSession, tmp_path: Path
) -> None:
    def shop(**aggregates: Any) -> App:
        app = App("shop", data=tmp_path, spark=spark, buckets=2)
        app.stream("orders", ORDER)

        @app.derive("totals", key="customer", alone=True)
        def totals(orders: DataFrame) -> DataFrame:
            return ps.aggregate(orders, by="customer", **aggregates)

        return app

    with served(tmp_path) as log:
        log.create("orders", partitions=1)
        append(log, "orders", [order(number, number % 2) for number in range(10)])
        assert shop(n=ps.count()).run(once=True) == 0
        append(log, "orders", [order(10, 0)])
        assert shop(latest=ps.max("id")).run(once=True, rebuild=["totals"]) == 0
        assert table(log, "totals-v2", "customer") == {0: {"latest": 10}, 1: {"latest": 9}}
        append(log, "orders", [order(11, 1)])
        assert shop(latest=ps.max("id")).run(once=True) == 0
        assert table(log, "totals-v2", "customer") == {0: {"latest": 10}, 1: {"latest": 11}}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nodes_that_fail_leave_the_others_alone(spark: SparkSession, tmp_path: Path) -> None:
    app = App("shop", data=tmp_path, spark=spark, buckets=2)
    app.stream("orders", ORDER)
    app.stream("clicks", ORDER)
    broken = tmp_path / "broken"

    @app.derive("copies")
    def copies(orders: DataFrame) -> DataFrame:
        return orders

    @app.derive("seen")
    def seen(clicks: DataFrame) -> DataFrame:
        return clicks

    @app.derive("fragile")
    def fragile(copies: DataFrame) -> DataFrame:
        def through(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                if batch.num_rows and broken.exists():
                    raise RuntimeError("the scale is out of order")
                yield batch

        return copies.mapInArrow(through, copies.schema)

    with served(tmp_path) as log:
        for topic in ("orders", "clicks"):
            log.create(topic, partitions=1)
            append(log, topic, [order(number) for number in range(5)])
        with supervised(app) as supervisor:
            await_rows(log, {"copies": 5, "seen": 5, "fragile": 5})
            broken.touch()
            log.delete("clicks")
            append(log, "orders", [order(number) for number in range(5, 8)])
            await_rows(log, {"copies": 8})
            node = {each.name: each for each in supervisor.status.nodes}
            await_failure(node["fragile"], "the scale is out of order")
            await_failure(node["seen"], "TopicNotFound")
            assert "'clicks'" in node["seen"].error

            # What is repaired goes on by itself.
            broken.unlink()
            await_rows(log, {"fragile": 8})
            wait_until(lambda: node["fragile"].state != "failed", within=WITHIN)
            assert node["fragile"].restarts >= 1

            # Another topic of that name is not the one that was read.
            log.create("clicks", partitions=1)
            append(log, "clicks", [order(number) for number in range(20, 29)])
            await_failure(node["seen"], "DataLost")
            assert "--reset" in node["seen"].error
            assert node["copies"].restarts == 0
            append(log, "orders", [order(8)])
            await_rows(log, {"fragile": 9})
        assert supervisor.failing == 1
        assert [each.state for each in supervisor.status.nodes] == ["stopped", "failed", "stopped"]
        assert rows_of(log, "seen") == 5

        assert app.run(once=True, reset=["seen"]) == 0
        assert {name: rows_of(log, name) for name in app.nodes} == {
            "copies": 9,
            "seen": 9,
            "fragile": 9,
        }


class Supervised(threading.Thread):
    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__(daemon=True)
        self.status = supervisor.status
        self.failing: int | None = None
        self._supervisor = supervisor
        self._stop_asked = threading.Event()

    def run(self) -> None:
        self.failing = self._supervisor.run(self._stop_asked)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


@contextmanager
def supervised(app: App) -> Iterator[Supervised]:
    """The app runs in a thread of this process, as `penstock run` lets it run."""
    status = AppStatus(app.name, 0, clock.now_ms(), clock.now_ms())
    with installed(app) as installation:
        running = Supervised(Supervisor(installation, app_folder(app.data, app.name), status))
        running.start()
        try:
            yield running
        finally:
            running.stop()


def rows_of(log: Log, topic: str) -> int:
    numbers = range(len(log.describe(topic).partitions))
    return sum(record.value is not None for n in numbers for record in log.read(topic, n, 0))


def await_rows(log: Log, counts: dict[str, int]) -> None:
    for topic, count in counts.items():
        wait_until(lambda t=topic, n=count: rows_of(log, t) >= n, within=WITHIN, what=topic)  # type: ignore[misc]
        assert rows_of(log, topic) == count


def await_failure(node: NodeStatus, said: str) -> None:
    wait_until(
        lambda: node.state == "failed" and said in node.error,
        within=WITHIN,
        what=f"{said} of {node.name}",
    )
