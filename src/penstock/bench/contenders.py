"""Who is measured: the log as it comes, Apache Kafka as it comes, and Apache Kafka with fsync.

All keep their data in the system's temporary folder, so on the same disk.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from penstock.testing import KafkaProcess, LogServerProcess

PENSTOCK = "penstock"
KAFKA = "Kafka"
KAFKA_FSYNC = "Kafka with fsync"

Server = LogServerProcess | KafkaProcess

# Kafka's own start script gives it this heap. Deleted topics go at once, as the log's do, instead
# of a minute later in the middle of another measurement.
_HEAP = "1g"
_DELETE_AT_ONCE = {"log.segment.delete.delay.ms": 0}


@contextmanager
def _penstock() -> Iterator[Server]:
    # Durability is that of a topic without settings: fsync before every acknowledgement.
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        LogServerProcess(Path(folder)) as server,
    ):
        yield server


def _kafka() -> KafkaProcess:
    return KafkaProcess(heap=_HEAP, properties=_DELETE_AT_ONCE)


def _kafka_fsync() -> KafkaProcess:
    properties = {**_DELETE_AT_ONCE, "log.flush.interval.messages": 1}
    return KafkaProcess(heap=_HEAP, properties=properties)


# Each starts a server on an empty folder, and stops and removes it at the end.
CONTENDERS: dict[str, Callable[[], AbstractContextManager[Server]]] = {
    PENSTOCK: _penstock,
    KAFKA: _kafka,
    KAFKA_FSYNC: _kafka_fsync,
}


def peak_bytes(server: Server) -> int:
    """The most memory that was resident at once since the server started."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    lines = (line.split() for line in status.splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == "VmHWM:")
