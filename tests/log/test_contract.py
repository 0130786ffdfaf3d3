"""One behaviour, four logs: on disk, in memory, over the wire, and Apache Kafka's."""

from collections.abc import Iterator

import pytest

from penstock.log.contract import Log
from penstock.log.embedded import EmbeddedLog
from penstock.testing import KafkaProcess, LogServerProcess
from tests.log.contract.exact import ExactContract, NotExactContract
from tests.log.contract.following import FollowingContract
from tests.log.contract.groups import GroupsContract
from tests.log.contract.records import RecordsContract
from tests.log.contract.topics import TopicsContract


class LogContract(TopicsContract, RecordsContract, FollowingContract, GroupsContract):
    """A subclass gives the log, one for all its tests, and the address where clients find it."""


class PenstockContract(LogContract, ExactContract):
    """What penstock's own logs can do as well."""


class TestDiskLog(PenstockContract):
    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
        with Log.open(tmp_path_factory.mktemp("log")) as log:
            yield log

    @pytest.fixture
    def address(self, log: EmbeddedLog) -> str:
        return log.serve()


class TestMemoryLog(PenstockContract):
    @pytest.fixture(scope="class")
    @classmethod
    def log(cls) -> Iterator[Log]:
        with Log.memory() as log:
            yield log

    @pytest.fixture
    def address(self, log: EmbeddedLog) -> str:
        return log.serve()


class TestLogOverTheWire(PenstockContract):
    @pytest.fixture(scope="class")
    @classmethod
    def address(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        with LogServerProcess(tmp_path_factory.mktemp("log")) as server:
            yield server.address

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, address: str) -> Iterator[Log]:
        with Log.connect(address) as log:
            yield log


@pytest.mark.peer
class TestApacheKafka(LogContract, NotExactContract):
    @pytest.fixture(scope="class")
    @classmethod
    def address(cls, kafka: KafkaProcess) -> str:
        return kafka.address

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, address: str) -> Iterator[Log]:
        with Log.connect(address) as log:
            yield log
