"""`kill -9` of an app and of Spark's workers, again and again: everything once, nothing lost.

KILLS says how often; `make soak` tries longer.
"""

import contextlib
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import clock
from penstock.errors import PenstockError
from penstock.testing import KafkaProcess, LogServerProcess
from penstock.testing.spark_cluster import descendants
from tests.faults.shop import (
    TOPICS,
    Shop,
    await_moment,
    check_answer,
    create_orders,
    ends_of,
    orders_coming,
)

KILLS = int(os.environ.get("KILLS", "3"))
WITHIN = 300.0  # for what takes seconds on a quiet machine
ROUND = 60.0

Victim = Callable[[Shop, random.Random], None]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(2 * WITHIN + KILLS * ROUND * 3),
]


def test_on_the_embedded_log(log_server: LogServerProcess, tmp_path: Path) -> None:
    kill_again_and_again(log_server.address, tmp_path, joined=True)


def test_on_kafka(kafka: KafkaProcess, tmp_path: Path) -> None:
    kill_again_and_again(f"kafka://{kafka.address}", tmp_path)


def kill_again_and_again(log: str, folder: Path, *, joined: bool = False) -> None:
    dice = random.Random()
    create_orders(log)
    shop = Shop(folder, log, joined=joined)
    try:
        count = 0
        for first in range(0, KILLS, len(VICTIMS)):
            with orders_coming(log, first=count) as orders:
                for victim in VICTIMS[: KILLS - first]:
                    kill_at_some_moment(shop, dice, victim)
            count = orders.count
            shop.await_end(WITHIN)
            check_answer(log, count)
        assert shop.stop() == 0, shop.process.output[-3_000:]
    finally:
        shop.process.close()
    check_answer(log, count)


def kill_at_some_moment(shop: Shop, dice: random.Random, victim: Victim) -> None:
    what, happens = moment(shop, dice)
    shop.process.wait_until(happens, within=WITHIN, what=what)
    await_moment(dice.uniform(0, 0.5))
    print(f"{clock.monotonic():.0f} s: {victim.__name__} after {what}")  # noqa: T201
    victim(shop, dice)
    if victim is not kill_a_worker:
        shop.restart()


def moment(shop: Shop, dice: random.Random) -> tuple[str, Callable[[], bool]]:
    """Something that a node does in every batch, and whether it was done again by now."""
    node, step = dice.choice(MOMENTS)

    def done() -> set[object]:
        if step == "published":
            with contextlib.suppress(PenstockError):  # it is not there yet
                return {sum(ends_of(shop.log, node))}
            return set()
        return set(shop.kept(step).rglob("*"))

    before = done()
    return f"{step} of {node}", lambda: bool(done() - before)


MOMENTS = [(node, step) for node in TOPICS for step in ("offsets", "state", "published", "commits")]


def kill_all(shop: Shop, dice: random.Random) -> None:
    processes = [*descendants(shop.process.pid), shop.process.pid]
    for pid in processes:
        kill(pid)


def kill_the_driver(shop: Shop, dice: random.Random) -> None:
    """Of which the JVM hears soon, and ends itself."""
    kill(shop.process.pid)


def kill_a_worker(shop: Shop, dice: random.Random) -> None:
    """One of Spark's Python processes: a task's, or one that plans or commits."""
    workers = [pid for pid in descendants(shop.process.pid) if is_python(pid)]
    if workers:
        kill(dice.choice(workers))


VICTIMS = (kill_all, kill_a_worker, kill_the_driver, kill_a_worker, kill_a_worker)


def is_python(pid: int) -> bool:
    with contextlib.suppress(OSError):  # ended meanwhile
        return "python" in Path(f"/proc/{pid}/exe").readlink().name
    return False


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
