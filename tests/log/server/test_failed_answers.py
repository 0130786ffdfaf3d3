"""An answer that cannot be written ends the connection: a client that waits for it would hang."""

from typing import Any

import pytest

from penstock.log.server.apis.produce import Production
from penstock.log.server.codec import Codec
from tests.log.server.plain_client import PlainClient, batch, production
from tests.log.server.served import Served

COMMIT = {
    "group_id": "readers",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "retention_time_ms": -1,
}


def broken(*arguments: Any) -> Any:
    raise RuntimeError("this answer cannot be written")


def expect_end(served: Served, client: PlainClient, caplog: pytest.LogCaptureFixture) -> None:
    client._socket.settimeout(10)
    with pytest.raises(ConnectionError):
        client.receive()
    assert "this answer cannot be written" in caplog.text
    assert served.server.broker.counts["connection: internal error"] > 0


def test_one_that_was_awaited(
    served: Served,
    client: PlainClient,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client.create_topic(topic)
    monkeypatch.setattr(Codec, "write", broken)
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
    places = [{"name": topic, "partitions": [{**offset, "committed_metadata": ""}]}]
    client.send("offset_commit", 8, **COMMIT, topics=places)
    expect_end(served, client, caplog)


def test_one_that_waited_for_a_sync(
    served: Served,
    client: PlainClient,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client.create_topic(topic)
    monkeypatch.setattr(Production, "_answer", broken)
    client.send("produce", 11, **production(topic, batch(b"a")))
    expect_end(served, client, caplog)
