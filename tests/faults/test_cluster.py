"""The app on a cluster of two workers that share nothing but the checkpoints, one of which is lost.

The log is reached over the wire. What the app comes to on one machine, `test_exactly_once` tries.
"""

from pathlib import Path

import pytest

from penstock.runtime.query_folder import last_batch
from penstock.testing import KafkaProcess, LogServerProcess, SparkCluster
from tests.faults.shop import TOPICS, Shop, check_answer, create_orders, ends_of, orders_coming

WITHIN = 400.0  # for what takes seconds on a quiet machine

pytestmark = [pytest.mark.spark, pytest.mark.timeout(4 * WITHIN)]


def test_on_the_embedded_log(log_server: LogServerProcess, tmp_path: Path) -> None:
    lose_a_worker(log_server.address, tmp_path)


@pytest.mark.long  # what differs from the other is tried on one machine by `test_exactly_once`
def test_on_kafka(kafka: KafkaProcess, tmp_path: Path) -> None:
    lose_a_worker(f"kafka://{kafka.address}", tmp_path)


def lose_a_worker(log: str, folder: Path) -> None:
    create_orders(log)
    with SparkCluster(folder / "cluster", workers=2) as cluster:
        shop = Shop(folder, log, cluster.master)
        try:
            with orders_coming(log) as orders:
                await_more(shop)
                kept_warm = [any((folder / "cluster" / n / "warm").rglob("*")) for n in ("0", "1")]
                assert all(kept_warm), "a worker had no part in it"
                cluster.kill_worker(0)
                await_more(shop)
            shop.await_end(WITHIN)
            assert shop.stop() == 0, shop.process.output[-3_000:]
        finally:
            shop.process.close()
    check_answer(log, orders.count)


def await_more(shop: Shop) -> None:
    """Until more batches are committed, with rows that came meanwhile."""
    commits = shop.kept("commits")
    before = last_batch(commits)
    shop.process.wait_until(
        lambda: last_batch(commits) >= before + 10, within=WITHIN, what="more batches"
    )
    assert sum(ends_of(shop.log, TOPICS[-1]))
