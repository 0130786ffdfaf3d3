"""penstock's own requests, with bytes that no client of ours would send."""

import json
import struct
from typing import Any

import pytest

from penstock.events.batch import encode
from penstock.events.record import Record
from penstock.log import extension
from penstock.log.server import own
from tests.log.server.plain_client import PlainClient

BATCH = encode([Record(value=b"a")])


def ask(client: PlainClient, question: object, data: bytes = b"") -> Any:
    client.send_bytes(b"".join(extension.request(5, question, data)))  # type: ignore[arg-type]
    size, correlation = struct.unpack(">ii", client.receive_bytes(8))
    assert correlation == 5
    return json.loads(client.receive_bytes(size - 4))


def storing(topic: str, **facts: Any) -> dict[str, Any]:
    place = {"topic": topic, "partition": 0, "pen": None, "batch": 0, "expected": None}
    return {"ask": "store", **place, "size": len(BATCH), **facts}


def is_closed(client: PlainClient) -> bool:
    with pytest.raises(ConnectionError):
        client.receive_bytes(1)
    return True


@pytest.fixture
def place(client: PlainClient, topic: str) -> str:
    """The name of a topic that is there."""
    client.create_topic(topic)
    return topic


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"ask": "nothing"},
        [],
        {"ask": "store"},
        {"ask": "last_batch", "pen": 3, "topic": "t", "partition": 0},
        {"ask": "append_times", "topic": "t", "partition": "x", "start": 0, "end": 1},
        storing("t", size="x"),
        storing("t", expected=[1]),
        storing("t", expected={"\u20ac": 1}),
    ],
)
def test_what_is_no_question_ends_the_connection(client: PlainClient, question: object) -> None:
    client.send_bytes(b"".join(extension.request(5, question, BATCH)))  # type: ignore[arg-type]
    assert is_closed(client)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhihi", extension.API_KEY, 0, 1, -1, 99),
        struct.pack(">hhihi", extension.API_KEY, 0, 1, -1, -1),
        struct.pack(">hhihi", extension.API_KEY, 0, 1, 4, 0),
        struct.pack(">hhihi", extension.API_KEY, 1, 1, -1, 0),
        struct.pack(">hhihi", extension.API_KEY, 0, 1, -1, 3) + b"{x}",
        struct.pack(">hhi", extension.API_KEY, 0, 1),
    ],
)
def test_lengths_that_do_not_add_up_end_the_connection(client: PlainClient, frame: bytes) -> None:
    client.send_bytes(struct.pack(">i", len(frame)) + frame)
    assert is_closed(client)


def test_errors_come_back_by_name(client: PlainClient, place: str) -> None:
    refused = ask(client, storing(f"{place}-not"), BATCH)
    assert refused["error"] == "TopicNotFound"
    assert ask(client, storing(place, size=1), BATCH)["error"] == "InvalidInput"
    assert ask(client, storing(place, pen=["w", 1]), BATCH)["error"] == "WriterFenced"
    assert ask(client, storing(place, expected=4), BATCH)["actual"] == -1
    assert ask(client, storing(place), b"x" * len(BATCH))["error"] == "CorruptBatch"
    assert ask(client, storing(place), BATCH) == {"offsets": [0, 1], "new": True}


def test_staged_data_comes_before_the_rest(client: PlainClient, place: str) -> None:
    for at in range(0, 60, 20):
        assert ask(client, {"ask": "stage"}, BATCH[at : at + 20]) == {}
    assert ask(client, storing(place), BATCH[60:]) == {"offsets": [0, 1], "new": True}
    assert ask(client, storing(place), BATCH) == {"offsets": [1, 2], "new": True}


def test_what_is_staged_is_bounded(
    client: PlainClient, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "MAX_SPOOL_BYTES", 50)
    assert ask(client, {"ask": "stage"}, bytes(40)) == {}
    assert ask(client, {"ask": "stage"}, bytes(40))["error"] == "RecordTooLarge"
    # Nothing of it is left.
    assert ask(client, storing(place), BATCH) == {"offsets": [0, 1], "new": True}
