from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clock import now_ms
from penstock.errors import InvalidInput
from penstock.events.batch import HEADER_BYTES, check_produced, encode, read_header
from penstock.events.columns import SCHEMA
from penstock.events.encoding import BATCH_BYTES, encode_columns
from penstock.events.record import Record
from tests.events.both_decoders import compiled, plain

contents = st.none() | st.binary(max_size=80) | st.binary(min_size=120, max_size=400)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
records = st.builds(
    Record,
    key=contents,
    value=contents,
    headers=st.lists(st.tuples(names, contents), max_size=3).map(tuple),
    timestamp=st.integers(-(2**61), 2**61) | st.integers(1_700_000_000_000, 1_700_000_100_000),
)


def columns(content: list[Record]) -> pa.RecordBatch:
    headers = [
        [{"key": name, "value": value} for name, value in record.headers] for record in content
    ]
    data: dict[str, list[Any]] = {
        "key": [record.key for record in content],
        "value": [record.value for record in content],
        "timestamp": [record.timestamp for record in content],
        "headers": headers,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(values, SCHEMA.field(name).type) for name, values in data.items()], list(data)
    )


@given(st.lists(records, min_size=1, max_size=20), st.sampled_from([0, 1, 2, 3, 4]))
def test_one_batch_is_what_the_plain_encoder_makes(content: list[Record], codec: int) -> None:
    assert list(encode_columns(columns(content), codec=codec)) == [encode(content, codec=codec)]


@given(st.lists(records, max_size=20), st.integers(1, 1500), st.integers(0, 2))
def test_batches_hold_as_much_as_they_may(content: list[Record], size: int, skip: int) -> None:
    at = skip
    made = list(encode_columns(columns(content)[skip:], size=size))
    for place, data in enumerate(made):
        header = check_produced(memoryview(data))
        batch = content[at : at + header.records]
        assert data == encode(batch)
        assert compiled(data) == plain(data) is not None
        assert len(data) <= HEADER_BYTES + size or header.records == 1
        if place + 1 < len(made):
            assert len(encode(content[at : at + header.records + 1])) > HEADER_BYTES + size
        at += header.records
    assert at == max(skip, len(content))


def test_times_too_far_apart_for_one_batch() -> None:
    times = [2**63 - 1, 0, -2, -(2**63)]
    made = encode_columns(columns([Record(value=b"", timestamp=time) for time in times]))
    rows = [plain(data) or [] for data in made]
    assert [[row[1] for row in batch] for batch in rows] == [times[:2], times[2:]]


def test_columns_may_be_left_out() -> None:
    before = now_ms()
    (data,) = encode_columns(pa.RecordBatch.from_pydict({"key": [b"k"], "other": [1]}))
    ((offset, time, key, value, headers),) = plain(data) or []
    assert (offset, key, value, headers) == (0, b"k", None, ())
    assert before <= (time or 0) <= now_ms()


def test_batches_are_of_about_a_megabyte() -> None:
    rows = columns([Record(value=b"x" * 1000, timestamp=1)] * 2500)
    sizes = [len(data) for data in encode_columns(rows)]
    assert len(sizes) == 3
    assert BATCH_BYTES - 1010 < sizes[0] - HEADER_BYTES <= BATCH_BYTES


def test_no_rows_make_no_batch() -> None:
    assert list(encode_columns(columns([]))) == []


def test_the_largest_time_is_in_the_header() -> None:
    content = [Record(value=b"", timestamp=time) for time in (5, 9, 2)]
    (data,) = encode_columns(columns(content))
    header = read_header(data)
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)


def test_a_record_larger_than_a_batch_is_one_of_its_own() -> None:
    content = [Record(value=b"x" * size, timestamp=1) for size in (1, 500, 1, 1)]
    counts = [read_header(data).records for data in encode_columns(columns(content), size=100)]
    assert counts == [1, 1, 2]


def test_what_cannot_be_written() -> None:
    with pytest.raises(InvalidInput, match="a column value of type string"):
        list(encode_columns(pa.RecordBatch.from_pydict({"value": ["text"]})))
    with pytest.raises(InvalidInput, match="batches of 0 bytes"):
        list(encode_columns(columns([]), size=0))
    headers = pa.array([[{"key": None, "value": b""}]], SCHEMA.field("headers").type)
    with pytest.raises(InvalidInput, match="without a name"):
        list(encode_columns(pa.RecordBatch.from_arrays([headers], ["headers"])))
