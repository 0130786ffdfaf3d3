"""Following a view keeps one client, however often it looks."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import DataLost
from penstock.serve import subscription
from penstock.serve.subscription import Subscription
from penstock.streams.source.topic import open_topic
from tests.serve.scene import Scene

Follow = Callable[[], Subscription]


class Opened:
    """The topics that were opened, and those that were closed again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics: list[Any] = []
        self.closed: list[Any] = []
        self._patch = monkeypatch
        monkeypatch.setattr(subscription, "open_topic", self._open)

    def _open(self, *place: Any) -> Any:
        topic = open_topic(*place)
        self.topics.append(topic)
        self._patch.setattr(topic, "close", lambda: self.closed.append(topic))
        return topic


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


@pytest.fixture
def follow(scene: Scene) -> Follow:
    scene.commit(0, {"NL": {"total": 1.0}})
    scene.project()
    return lambda: Subscription(scene.path, str(scene.folder), "revenue")


def test_the_topic_is_opened_once_and_closed_at_the_end(
    scene: Scene, opened: Opened, follow: Follow
) -> None:
    followed = follow()
    for batch in range(1, 4):
        scene.commit(batch, {"NL": {"total": float(batch)}})
        scene.project()
        assert len(list(followed.poll())) == 1
        assert not list(followed.poll())
    assert (len(opened.topics), opened.closed) == (1, [])
    followed.close()
    assert opened.closed == opened.topics
    scene.commit(4, {"NL": None})
    scene.project()
    assert [event.kind for event in followed.poll()] == ["delete"]  # it can be gone on with


def test_a_rebuilt_view_has_another_topic(scene: Scene, opened: Opened, follow: Follow) -> None:
    followed = follow()
    scene.commit(1, {"NO": {"total": 1.0}})
    scene.project()
    assert len(list(followed.poll())) == 1
    scene.log.delete("revenue")
    again = Scene(scene.log, scene.folder)
    again.commit(0, {"NL": {"total": 1.0}})
    again.project()
    assert [event.kind for event in followed.poll()] == ["rebuilt"]
    again.commit(1, {"NO": {"total": 1.0}})
    again.project()
    assert [event.kind for event in followed.poll()] == ["upsert"]
    assert (len(opened.topics), opened.closed) == (2, opened.topics[:1])


def test_a_topic_that_was_made_again_is_not_read_as_the_old_one(
    scene: Scene, opened: Opened, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follow()
    scene.commit(1, {"NO": {"total": 1.0}})
    scene.project()
    assert len(list(followed.poll())) == 1
    scene.commit(2, {"NO": {"total": 2.0}})
    scene.project()
    monkeypatch.setattr(type(opened.topics[0]), "id", "of another one")
    with pytest.raises(DataLost, match="made again"):
        list(followed.poll())
    assert opened.closed == opened.topics


def test_what_fails_is_opened_anew(
    scene: Scene, opened: Opened, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follow()
    scene.commit(1, {"NO": {"total": 1.0}})
    scene.project()

    def fails(*arguments: Any) -> Any:
        raise OSError("the connection is gone")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.streams.source.topic.FolderTopic.bounds", fails)
        with pytest.raises(OSError, match="is gone"):
            list(followed.poll())
    assert opened.closed == opened.topics
    assert [event.kind for event in followed.poll()] == ["upsert"]
    assert len(opened.topics) == 2
