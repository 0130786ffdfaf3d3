import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Record
from penstock.events.schema import parse_schema
from penstock.streams.source.event_time import EventTime, Rule
from penstock.streams.source.progress import Progress
from penstock.streams.source.punctuation import HEADER, punctuation
from penstock.streams.source.spec import SourceSpec
from tests.streams.source.listed import NOW, ListedTopic, read

SCHEMA = parse_schema("id long, at timestamp")
LONGS = parse_schema("id long, occurred long, sent long, received long")


def spec(**more: Any) -> SourceSpec:
    return SourceSpec("nowhere", "orders", **{"schema": SCHEMA, **more})


def instant(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1_000, UTC)


def row(number: int, seconds: float | None = 0, **more: Any) -> Record:
    """An event so many seconds from NOW."""
    at = None if seconds is None else NOW + round(seconds * 1_000)
    return Record(value=json.dumps({"id": number, "at": at}).encode(), **more)


def ids(table: pa.Table) -> list[int]:
    found: list[int] = table["id"].to_pylist()
    return found


def conserves(progress: Progress, rows: int, marks: int = 0) -> bool:
    counted = progress.read == progress.kept + sum(progress.rejected.values())
    return counted and (progress.read, progress.marks) == (rows, marks)


def avro(number: int) -> bytes:
    about = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "name", "type": ["null", "string"]},
        ],
    }
    stream = BytesIO()
    fastavro.schemaless_writer(stream, about, {"id": number, "name": "x"})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "options", "good", "bad"),
    [
        ("json", {}, b'{"id": 7, "name": "x"}', b'{"id": "7"}'),
        ("json", {}, b'{"id": 7, "name": "x"}', b'{"id": 7'),
        ("csv", {}, b"7,x", b"seven,x"),
        ("csv", {"sep": ";"}, b"7;x", b"7,x"),
        ("avro", {}, avro(7), b"\xff\xff"),
    ],
)
def test_every_format(kind: str, options: dict[str, str], good: bytes, bad: bytes) -> None:
    topic = ListedTopic([Record(value=value) for value in (good, bad, b"", good)])
    told = spec(schema=parse_schema("id long, name string"), format=kind, format_options=options)
    table, progress = read(told, topic)
    assert table.to_pylist() == [{"id": 7, "name": "x"}] * 2
    assert progress.rejected == {"unparsable": 2}
    assert conserves(progress, 4)


@pytest.mark.parametrize(("kind", "value"), [("text", "Zoë"), ("bytes", b"\xff")])
def test_whole_values(kind: str, value: Any) -> None:
    written = value if isinstance(value, bytes) else value.encode()
    topic = ListedTopic([Record(value=written), Record(value=None)])
    told = SourceSpec.parse({"log": "x", "topic": "t", "format": kind})
    table, progress = read(told, topic)
    assert table.to_pylist() == [{"value": value}]
    assert progress.rejected == {"unparsable": 1}


def test_metadata() -> None:
    record = row(1, key=b"k", headers=(("trace", b"7"), ("none", None)), timestamp=1_234)
    topic = ListedTopic([], [record, Record(value=b"bad"), row(2)])
    every = ("headers", "timestamp", "offset", "partition", "key")
    table, _ = read(spec(metadata=every), topic, partition=1)
    assert table.to_pylist() == [
        {
            "id": 1,
            "at": instant(NOW),
            "_headers": [{"key": "trace", "value": b"7"}, {"key": "none", "value": None}],
            "_timestamp": instant(1_234),
            "_offset": 0,
            "_partition": 1,
            "_key": b"k",
        },
        {
            "id": 2,
            "at": instant(NOW),
            "_headers": [],
            "_timestamp": instant(NOW),
            "_offset": 2,
            "_partition": 1,
            "_key": None,
        },
    ]


# Event time


@pytest.mark.parametrize(
    ("rule", "values", "timestamp", "happened"),
    [
        (Rule(), {}, 5_000, 5_000),
        (Rule("occurred"), {"occurred": 7_000}, 5_000, 7_000),
        (Rule("occurred"), {}, 5_000, None),
        (Rule(occurred="occurred", sent="sent"), {"occurred": 70, "sent": 90}, 5_000, 4_980),
        (
            Rule(occurred="occurred", sent="sent", received="received"),
            {"occurred": 70, "sent": 90, "received": 1_000},
            5_000,
            980,
        ),
        (Rule(occurred="occurred", sent="sent"), {"occurred": 70}, 5_000, None),
        (Rule(occurred="occurred", sent="sent"), {"sent": 70}, 5_000, None),
        (
            Rule(occurred="occurred", sent="sent", received="received"),
            {"occurred": 70, "sent": 90},
            5_000,
            None,
        ),
    ],
)
def test_when_an_event_happened(
    rule: Rule, values: dict[str, int], timestamp: int, happened: int | None
) -> None:
    topic = ListedTopic([Record(value=json.dumps(values).encode(), timestamp=timestamp)])
    table, progress = read(spec(schema=LONGS, rule=rule), topic)
    if happened is None:
        assert (table.num_rows, progress.rejected) == (0, {"missing": 1})
    else:
        assert table["_time"].to_pylist() == [instant(happened)]
        assert progress.high == happened * 1_000


def test_a_time_in_a_column_of_timestamps_is_not_written_twice() -> None:
    told = spec(rule=EventTime("at", wait="1s").rule())
    table, progress = read(told, ListedTopic([row(1)]))
    assert table.schema.names == ["id", "at"]
    assert progress.high == NOW * 1_000


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 2**61, 10**16, -(10**15)])
@pytest.mark.parametrize("column", ["occurred", "sent"])
def test_longs_that_are_no_times(time: int, column: str) -> None:
    rule = Rule(occurred="occurred", sent="sent", wait=0) if column == "sent" else Rule("occurred")
    good = {"id": 1, "occurred": NOW, "sent": NOW}
    values = [good, {**good, "id": 2, column: time}, {**good, "id": 3}]
    records = [Record(value=json.dumps(each).encode(), timestamp=NOW) for each in values]
    told = spec(schema=LONGS, rule=rule)
    table, progress = read(told, ListedTopic(records))
    assert (ids(table), progress.rejected) == ([1, 3], {"unparsable": 1})
    assert progress.high == NOW * 1_000
    rejected, _ = read(spec(schema=LONGS, rule=rule, rejected=True), ListedTopic(records))
    (why,) = rejected.to_pylist()
    assert (why["reason"], why["offset"], why["event_time"]) == ("unparsable", 1, None)
    assert "years 1 to 9999" in why["detail"]


@pytest.mark.parametrize("stamp", [2**63 - 1, -(2**63), 2**62])
def test_timestamps_that_are_no_times(stamp: int) -> None:
    records = [row(1, timestamp=NOW), row(2, timestamp=stamp), row(3, timestamp=NOW)]
    table, progress = read(spec(rule=Rule(wait=0)), ListedTopic(records))
    assert (ids(table), progress.rejected) == ([1, 3], {"unparsable": 1})
    table, _ = read(spec(metadata=("timestamp",)), ListedTopic(records))
    assert table["_timestamp"].to_pylist() == [instant(NOW), None, instant(NOW)]
    rejected, _ = read(spec(rule=Rule(wait=0), rejected=True), ListedTopic(records))
    assert rejected["timestamp"].to_pylist() == [None]


def test_a_record_without_a_timestamp() -> None:
    topic = ListedTopic([row(1, timestamp=-1), row(2, timestamp=NOW)])
    table, progress = read(spec(rule=Rule(wait=0)), topic)
    assert (ids(table), progress.rejected) == ([2], {"missing": 1})


def test_one_event_from_2099() -> None:
    told = spec(rule=EventTime("at", wait="10s", guard="1h").rule())
    topic = ListedTopic([row(1), row(2, 86_400 * 365 * 70), row(3, -10), row(4, 3_600)])
    table, progress = read(told, topic)
    assert (ids(table), progress.rejected) == ([1, 3, 4], {"future": 1})
    assert progress.high == (NOW + 3_600_000) * 1_000


def test_the_future_is_what_is_ahead_of_the_appending() -> None:
    told = spec(rule=EventTime("at", wait="1 day", guard="1s").rule())
    topic = ListedTopic([row(number, 5) for number in range(6)], chunk=4)
    topic.appended = [(1, NOW), (3, NOW + 4_000), (5, NOW)]
    table, progress = read(told, topic, planned=NOW + 10_000)
    assert (ids(table), progress.rejected) == ([0, 3, 4], {"future": 3})


def test_the_future_where_records_are_stamped_by_the_log() -> None:
    told = spec(rule=EventTime("at", wait="1 day", guard="1s").rule())
    topic = ListedTopic([row(1, 5, timestamp=NOW), row(2, 5, timestamp=NOW + 4_000)])
    topic.is_stamped = True
    table, _ = read(told, topic, planned=NOW + 10_000)
    assert ids(table) == [2]


# Upserts


@pytest.mark.parametrize("rule", [None, Rule("at"), Rule(occurred="at", sent="at")])
def test_upserts_and_deletes(rule: Rule | None) -> None:
    records = [
        row(1, 0, key=b"1", timestamp=NOW),
        Record(key=b"1", value=None, timestamp=NOW + 1),
        row(2, 0, key=b"2", timestamp=NOW),
        Record(key=b"x", value=None),
        Record(key=None, value=None),
        Record(key=b"3", value=None, timestamp=NOW),
    ]
    table, progress = read(spec(key=("id",), rule=rule, metadata=("offset",)), ListedTopic(records))
    # With a column of times, that is the record's; otherwise there is nothing but the key.
    has_none = rule is None or rule.column is None
    assert [(r["id"], r["at"] is None, r["_offset"], r["_deleted"]) for r in table.to_pylist()] == [
        (1, False, 0, False),
        (1, has_none, 1, True),
        (2, False, 2, False),
        (3, has_none, 5, True),
    ]
    if not has_none:
        assert table["at"].to_pylist()[1] == instant(NOW + 1)
    assert progress.rejected == {"unparsable": 2}
    assert conserves(progress, 6)
    if rule is not None:
        assert progress.high == (NOW + 1) * 1_000


def test_an_upsert_without_its_time_is_missing_it() -> None:
    topic = ListedTopic([row(1, None, key=b"1"), Record(key=b"1", value=None)])
    table, progress = read(spec(key=("id",), rule=Rule("at")), topic)
    assert table["_deleted"].to_pylist() == [True]
    assert progress.rejected == {"missing": 1}


def test_deletes_by_several_columns() -> None:
    told = spec(
        schema=parse_schema("a string, v double NOT NULL, b long"), key=("b", "a"), rule=Rule()
    )
    topic = ListedTopic(
        [
            Record(value=b'{"a": "x", "b": 1, "v": 0.5}', timestamp=NOW),
            Record(key=b'{"a": "x", "b": 1}', value=None, timestamp=NOW + 1),
            Record(key=b'{"a": "x", "b": "one"}', value=None, timestamp=NOW + 1),
        ]
    )
    table, progress = read(told, topic)
    assert table.to_pylist() == [
        {"a": "x", "v": 0.5, "b": 1, "_time": instant(NOW), "_deleted": False},
        {"a": "x", "v": None, "b": 1, "_time": instant(NOW + 1), "_deleted": True},
    ]
    assert progress.rejected == {"unparsable": 1}


def test_nothing_but_deletes() -> None:
    topic = ListedTopic([Record(key=b"%d" % number, value=None) for number in range(3)])
    table, _ = read(spec(key=("id",)), topic)
    assert (ids(table), table["_deleted"].to_pylist()) == ([0, 1, 2], [True] * 3)


# Rejected rows


def test_a_poison_record_is_rejected_and_reading_goes_on() -> None:
    told = {"rule": EventTime("at", wait="10s", correct_for="5s").rule()}
    records: list[Record | None] = [
        row(1, 0),
        Record(value=b"\x00\xff", key=b"k", timestamp=NOW - 5),
        None,
        row(2, -15),
        row(3, -16),
        row(4, None),
        row(5, 86_400 * 2),
        Record(value=None),
        row(6, 0),
    ]
    topic = ListedTopic(records, chunk=2)
    table, progress = read(spec(**told), topic)
    assert ids(table) == [1, 2, 6]
    assert progress.rejected == {"unparsable": 2, "late": 1, "missing": 1, "future": 1}
    assert conserves(progress, 8)
    assert progress.at == 9

    rejected, again = read(spec(**told, rejected=True), topic)
    assert again == progress
    found = rejected.to_pylist()
    assert [(r["reason"], r["offset"]) for r in found] == [
        ("unparsable", 1),
        ("late", 4),
        ("missing", 5),
        ("future", 6),
        ("unparsable", 7),
    ]
    assert {(r["topic"], r["partition"]) for r in found} == {("orders", 0)}
    assert all(r["detail"] for r in found)
    assert (found[0]["value"], found[0]["key"]) == (b"\x00\xff", b"k")
    assert found[0]["timestamp"] == instant(NOW - 5)
    assert [r["event_time"] for r in found] == [
        None,
        instant(NOW) - timedelta(seconds=16),
        None,
        instant(NOW) + timedelta(days=2),
        None,
    ]
    assert found[2]["detail"] == "null in at"
    assert found[4]["detail"] == "the record has no value"


def test_a_stream_without_event_time_rejects_what_does_not_parse() -> None:
    topic = ListedTopic([row(1), Record(value=b"{")])
    rejected, progress = read(spec(rejected=True), topic)
    assert rejected["reason"].to_pylist() == ["unparsable"]
    assert progress.rejected == {"unparsable": 1}


# Punctuation


def test_punctuation_in_the_middle() -> None:
    told = spec(rule=Rule("at", guard=0), metadata=("offset",))
    promise = (NOW + 5_000) * 1_000
    topic = ListedTopic([row(1), punctuation("p", promise), row(2), row(3, 5)])
    for chunk in (1, 2, 3, 4):
        topic.chunk = chunk
        table, progress = read(told, topic, planned=NOW + 10_000)
        assert table["_offset"].to_pylist() == [0, 3]
        assert (progress.rejected, progress.promised) == ({"late": 1}, {"p": promise})
        assert conserves(progress, 3, marks=1)


@pytest.mark.parametrize("key", [(), ("id",)])
def test_broken_punctuation_is_a_row_that_does_not_parse(key: tuple[str, ...]) -> None:
    broken = Record(value=None, key=b"7", headers=((HEADER, b"soon"),))
    marks = [punctuation("p", NOW), punctuation("p", NOW + 1)]
    topic = ListedTopic([row(1), marks[0], broken, marks[1], row(2)])
    table, progress = read(spec(key=key), topic)
    assert ids(table) == [1, 2]
    assert progress.promised == {"p": NOW + 1}
    assert conserves(progress, 3, marks=2)
    rejected, _ = read(spec(key=key, rejected=True), topic)
    (why,) = rejected.to_pylist()
    assert (why["reason"], why["offset"]) == ("unparsable", 2)
    assert HEADER in why["detail"]


def test_a_row_that_carries_the_header_of_punctuation_is_a_row() -> None:
    topic = ListedTopic([row(1, headers=((HEADER, b"soon"),)), row(2, headers=(("x", b""),))])
    table, progress = read(spec(), topic)
    assert ids(table) == [1, 2]
    assert progress.marks == 0


# Ranges


def test_a_range_without_records() -> None:
    topic = ListedTopic([row(1), None, None, row(2)])
    table, progress = read(spec(), topic, Progress(1), until=1)
    assert (table.num_rows, progress) == (0, Progress(1))
    table, progress = read(spec(), topic, Progress(1), until=3)
    assert (table.num_rows, progress) == (0, Progress(3))


events: st.SearchStrategy[Record | None] = st.one_of(
    st.none(),
    st.builds(row, st.integers(0, 9), st.none() | st.integers(-40, 40) | st.just(10**7)),
    st.builds(
        lambda name, seconds: punctuation(name, (NOW + seconds * 1_000) * 1_000),
        st.sampled_from("ab"),
        st.integers(-40, 40),
    ),
    st.builds(lambda key: Record(key=key, value=None), st.sampled_from([b"1", b"x", None])),
    st.just(Record(value=None, headers=((HEADER, b"?"),))),
    st.just(Record(value=b'{"id": 1.5}')),
)


@settings(max_examples=60)
@given(
    st.lists(events, max_size=30),
    st.sets(st.integers(0, 30), max_size=5),
    st.integers(1, 7),
    st.booleans(),
)
def test_any_cut_into_ranges_reads_the_same(
    records: Sequence[Record | None], cuts: set[int], chunk: int, upserts: bool
) -> None:
    rule = EventTime("at", wait="10s", correct_for="10s").rule()
    told = {"rule": rule, "key": ("id",) if upserts else ()}
    whole = ListedTopic(records)
    kept, end = read(spec(**told, metadata=("offset",)), whole)
    rejected, same = read(spec(**told, rejected=True), whole)
    assert same == end
    marks = sum(each is not None and _is_punctuation(each) for each in records)
    assert conserves(end, sum(each is not None for each in records) - marks, marks)
    assert (kept.num_rows, rejected.num_rows) == (end.kept, sum(end.rejected.values()))

    for told_here, expected in (({"metadata": ("offset",)}, kept), ({"rejected": True}, rejected)):
        progress, found = Progress(0), []
        topic = ListedTopic(records, chunk=chunk)
        places = sorted({each for each in cuts if each < len(records)} | {0, len(records)})
        for _, until in pairwise(places):
            rows, progress = read(spec(**told, **told_here), topic, progress, until=until)
            found += rows.to_pylist()
        assert found == expected.to_pylist()
        assert progress == end


def _is_punctuation(record: Record) -> bool:
    return record.value is None and any(
        name == HEADER and content != b"?" for name, content in record.headers
    )
