import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.errors import DataLost, TopicNotFound
from penstock.streams.source.topic import is_address, open_topic
from tests.streams.source.topic_contract import COUNT, SourceTopicContract, WithAppendTimes


@pytest.mark.parametrize(
    ("log", "is_one"),
    [
        ("localhost:9092", True),
        ("kafka://localhost:9092", True),
        ("kafka://a:1,b:2", True),
        ("a:1,b:2", True),
        ("10.0.0.1:9092", True),
        ("penstock-data", False),
        ("/data/a:b", False),
        ("data:x", False),
        ("./a:1", False),
    ],
)
def test_addresses(log: str, is_one: bool) -> None:
    assert is_address(log) == is_one


class TestFolderTopic(SourceTopicContract, WithAppendTimes):
    @pytest.fixture(scope="class")
    @classmethod
    def address(cls, tmp_path_factory: pytest.TempPathFactory) -> str:
        return os.fspath(tmp_path_factory.mktemp("log"))

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, address: str) -> Iterator[Log]:
        with Log.open(address) as log:
            yield log

    def test_a_topic_that_changed_while_it_was_read(self, log: Log, address: str) -> None:
        log.create("short-lived")
        topic = open_topic(address, "short-lived")
        log.delete("short-lived")
        with pytest.raises(TopicNotFound):
            topic.partitions()
        log.create("short-lived")
        with pytest.raises(DataLost, match="deleted and made again"):
            topic.partitions()


def test_nobody_has_to_serve_the_folder(tmp_path: Path) -> None:
    with Log.open(tmp_path) as log:
        log.create("t")
        log.append("t", [Record(value=b"x", timestamp=number) for number in range(1, COUNT)])
    topic = open_topic(os.fspath(tmp_path), "t")
    assert topic.offsets_at([0], 30) == {0: 29}
    assert not (tmp_path / "server.log").exists()
