"""A look at rejected rows leaves no connection behind."""

from pathlib import Path
from typing import Any

import pytest

from penstock import Log, Record
from penstock.events.schema import parse_schema
from penstock.runtime import rejects
from penstock.runtime.status import InputStatus
from penstock.streams.source.spec import SourceSpec
from penstock.streams.source.topic import open_topic


@pytest.mark.parametrize("most", [1, 10])
def test_the_topic_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Whether or not there are more rows than are wanted."""
    closed: list[str] = []

    def opened(*place: Any) -> Any:
        topic = open_topic(*place)
        monkeypatch.setattr(topic, "close", lambda: closed.append(topic.name))
        return topic

    monkeypatch.setattr(rejects, "open_topic", opened)
    with Log.open(tmp_path) as log:
        log.create("orders")
        log.append("orders", [Record(value=b"no row") for _ in range(3)])
    source = SourceSpec(log=str(tmp_path), topic="orders", schema=parse_schema("id long"))
    told = InputStatus("orders", "orders", next={"0": 3}, source=source.options())
    found = rejects.first_rejected(told, most=most, within=30.0)
    assert len(found) == min(most, 3)
    assert closed == ["orders"]
