"""What is measured, and how much of it: each workload on a topic of its own, deleted afterwards."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from penstock import Log
from penstock.bench import client
from penstock.bench.client import PARTITIONS, Measured
from penstock.bench.figures import Row
from penstock.errors import LogError

KILOBYTE = 1024
SMALL = 100
MEASURE_WITHIN = 300.0


class Amount(NamedTuple):
    """Numbers of records."""

    kilobytes: int
    small: int
    sync: int
    end_to_end: int


# Seconds of load in each measurement.
FULL = Amount(kilobytes=400_000, small=1_000_000, sync=2_000, end_to_end=5_000)
# Enough to see that everything runs, too little to measure anything.
QUICK = Amount(kilobytes=2_000, small=5_000, sync=100, end_to_end=200)


class Workload(NamedTuple):
    name: str
    measure: Callable[[str, Amount], dict[Row, float]]
    """Of the server at an address."""


def _kilobytes(address: str, amount: Amount) -> dict[Row, float]:
    return _throughput(address, "1 KB", amount.kilobytes, KILOBYTE)


def _small(address: str, amount: Amount) -> dict[Row, float]:
    return _throughput(address, "100 B", amount.small, SMALL)


def _throughput(address: str, label: str, records: int, size: int) -> dict[Row, float]:
    rows: dict[Row, float] = {}
    with _topic(address) as topic:
        for what in ("produce", "consume"):
            measured = _measure(what, address, topic, records, size)
            rows |= {Row(f"{what} {label}", unit): value for unit, value in measured.items()}
    return rows


def _sync_produce(address: str, amount: Amount) -> dict[Row, float]:
    return _latency(address, "sync produce", amount.sync)


def _end_to_end(address: str, amount: Amount) -> dict[Row, float]:
    return _latency(address, "end to end", amount.end_to_end)


def _latency(address: str, what: str, records: int) -> dict[Row, float]:
    with _topic(address) as topic:
        measured = _measure(what, address, topic, records, SMALL)
    return {Row(f"{what} {percentile}", "ms"): value for percentile, value in measured.items()}


WORKLOADS = (
    Workload("1 KB", _kilobytes),
    Workload("100 B", _small),
    Workload("sync produce", _sync_produce),
    Workload("end to end", _end_to_end),
)


@contextmanager
def _topic(address: str) -> Iterator[str]:
    topic = f"bench-{uuid.uuid4().hex}"
    with Log.connect(address) as log:
        log.create(topic, partitions=PARTITIONS)
        yield topic
        log.delete(topic)


def _measure(what: str, address: str, topic: str, records: int, size: int) -> Measured:
    """Runs one of the client's measures in a fresh process.

    Raises LogError, with the end of its output, when it fails or does not end.
    """
    # What an earlier measurement left for the kernel to write is not this one's to pay for.
    os.sync()
    try:
        done = subprocess.run(
            (sys.executable, "-m", client.__name__, what, address, topic, str(records), str(size)),
            capture_output=True,
            text=True,
            timeout=MEASURE_WITHIN,
            check=True,
            process_group=0,  # Ctrl-C is for the benchmark, which ends its client itself
        )
    except subprocess.CalledProcessError as error:
        raise LogError(
            f"measuring {what!r} at {address} failed", hint=error.stderr[-1_000:].strip()
        ) from None
    except subprocess.TimeoutExpired:
        raise LogError(
            f"measuring {what!r} at {address} did not end within {MEASURE_WITHIN:g} s",
            hint="is the machine doing something else?",
        ) from None
    return cast(Measured, json.loads(done.stdout))
