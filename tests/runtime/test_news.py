from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.errors import PenstockError
from penstock.runtime.news import News
from penstock.streams.source.offsets import SourceOffset
from penstock.streams.source.topic import FolderTopic, SourceTopic
from tests.streams.source.listed import ListedTopic

LONG = 60.0  # seconds, of which none passes unless something is wrong


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path) as log:
        log.create("orders", partitions=2)
        log.create("refunds")
        yield log


@pytest.fixture
def topics(log: Log, tmp_path: Path) -> dict[str, SourceTopic]:
    return {name: FolderTopic(str(tmp_path), name) for name in ("orders", "refunds")}


@pytest.fixture
def news(topics: dict[str, SourceTopic]) -> Iterator[News]:
    with closing(News(topics)) as news:
        yield news


def at(name: str, *ends: int) -> SourceOffset:
    return SourceOffset(name, "", 0, None, dict(enumerate(ends)), {}, False)


def is_told(news: News) -> bool:
    return news.wait(0, look_every=0)


def test_what_is_new(log: Log, news: News) -> None:
    log.append("orders", [Record(value=b"a", partition=1)])
    assert news.has_come({"orders": at("orders", 0, 0), "refunds": at("refunds", 0)})
    assert not news.has_come({"orders": at("orders", 0, 1), "refunds": at("refunds", 0)})


def test_an_append_to_any_topic_wakes(log: Log, news: News) -> None:
    assert is_told(news)  # what came before it is found by looking
    assert not is_told(news)
    for topic, partition in (("orders", 1), ("refunds", 0)):
        log.append(topic, [Record(value=b"a", partition=partition)])
        assert news.wait(LONG, look_every=LONG)
        assert not is_told(news)


def test_partitions_that_come_later_wake(log: Log, news: News) -> None:
    assert is_told(news)
    log.alter("refunds", partitions=2)
    while is_told(news):  # the folder that was made, and that it is watched from now on
        pass
    log.append("refunds", [Record(value=b"a", partition=1)])
    assert news.wait(LONG, look_every=LONG)


def test_one_topic_that_tells_nothing_is_looked_at(topics: dict[str, SourceTopic]) -> None:
    with closing(News({**topics, "far": ListedTopic([])})) as news:
        assert is_told(news)
        assert not news.wait(LONG, look_every=0.001)


def test_a_topic_that_is_gone(log: Log, news: News) -> None:
    assert is_told(news)
    log.delete("refunds")
    with pytest.raises(PenstockError):
        news.wait(LONG, look_every=LONG)
