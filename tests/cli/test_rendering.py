import json
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.rendering import ForPeople, json_line
from penstock.events.record import Record

NOON = 1_767_268_800_000  # 2026-01-01 in UTC, in milliseconds
TODAY = datetime(2026, 1, 1, 12, tzinfo=UTC)

contents = st.none() | st.binary() | st.text().map(str.encode)
records = st.builds(
    Record,
    value=contents,
    key=contents,
    headers=st.lists(st.tuples(st.text(), contents), max_size=3).map(tuple),
    timestamp=st.integers(-(2**63), 2**63 - 1),
    topic=st.just("t"),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
)


def bytes_of(content: Any) -> bytes | None:
    if content is None:
        return None
    return content.encode() if isinstance(content, str) else b64decode(content["base64"])


def record(**fields: Any) -> Record:
    chosen: dict[str, Any] = {"value": b"v", "timestamp": NOON} | fields
    return Record(topic="orders", partition=0, offset=17, **chosen)


def test_a_json_line_has_every_field_in_order() -> None:
    headers = (("trace", b"1"), ("trace", None))
    assert json_line(record(key="é".encode(), value=b'{"a":1}', headers=headers)).decode() == (
        '{"topic":"orders","partition":0,"offset":17,"timestamp":"2026-01-01T12:00:00.000Z",'
        '"key":"é","value":"{\\"a\\":1}","headers":[["trace","1"],["trace",null]]}\n'
    )


@given(records)
def test_nothing_is_lost_in_a_json_line(given_record: Record) -> None:
    line = json_line(given_record)
    assert line.count(b"\n") == 1
    found = json.loads(line)
    assert bytes_of(found["key"]) == given_record.key
    assert bytes_of(found["value"]) == given_record.value
    headers = tuple((name, bytes_of(content)) for name, content in found["headers"])
    assert headers == given_record.headers


@given(records)
def test_no_record_steers_a_terminal(given_record: Record) -> None:
    lines = ForPeople(TODAY).line(given_record).plain.splitlines()
    assert len(lines) in {1, 2}
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"key": b"ada", "value": b"2 pens"}, "ada  2 pens"),
        ({"value": b""}, ""),
        ({"value": None}, "null"),
        ({"value": b"a\nb\x1b[2J"}, "a\\nb\\x1b[2J"),
        ({"value": b"\xff" * 17}, f"<17 bytes: {'ff ' * 15}ff…>"),
        ({"value": b"v", "headers": (("h", b"1"), ("n", None))}, "v  h=1  n=null"),
    ],
)
def test_lines_for_people(
    fields: dict[str, Any], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ForPeople(TODAY).line(record(**fields, timestamp=1)).plain.splitlines()[-1]
    assert line.partition("  0@17  ")[2] == shown


def test_a_line_for_each_new_day() -> None:
    day = 86_400_000
    people = ForPeople(datetime.fromtimestamp(NOON / 1_000).astimezone())
    shown = [
        people.line(record(timestamp=at)).plain.splitlines()
        for at in (NOON, NOON - day, NOON - day, NOON)
    ]
    assert [len(lines) for lines in shown] == [1, 2, 1, 2]
    assert shown[1][0] == "── Wednesday, 2025-12-31 ──"


def test_json_is_coloured_and_other_text_is_not() -> None:
    def styles(value: bytes) -> set[str]:
        line = ForPeople(TODAY).line(record(value=value))
        return {str(span.style) for span in line.spans if str(span.style).startswith("json")}

    assert styles(b'{"a": [1, true, null, "x"]}') >= {"json.key", "json.number", "json.str"}
    assert styles(b"take 1 true thing") == set()


def test_a_time_beyond_the_calendar_is_given_in_milliseconds() -> None:
    far = record(timestamp=2**62)
    assert json.loads(json_line(far))["timestamp"] == 2**62
    assert ForPeople(TODAY).line(far).plain.startswith(f"{2**62} ms")
