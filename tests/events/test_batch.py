import struct
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptBatch
from penstock.events import batch
from penstock.events.batch import (
    APPEND_TIME,
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    check_batch,
    check_produced,
    check_stored,
    decode,
    encode,
    read_header,
    read_varint,
    stamp,
    with_append_time,
    write_varint,
)
from penstock.events.record import Record
from tests.events.both_decoders import plain
from tests.events.raw_batches import raw_batch, raw_record, sealed, varint

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of how it loads its own schemas
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
    from kafka.record.util import encode_varint

CODECS = (0, 1, 2, 3, 4)
# kafka-python has the other codecs only with packages of its own for each.
FOREIGN = [
    *(pytest.param(AiokafkaBuilder, AiokafkaBatch, c, id=f"aiokafka-{c}") for c in CODECS),
    *(pytest.param(KafkaPythonBuilder, KafkaPythonBatch, c, id=f"kafka-{c}") for c in (0, 1)),
]

contents = st.none() | st.binary(max_size=200)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
record_lists = st.lists(
    st.builds(
        Record,
        key=contents,
        value=contents,
        headers=st.lists(st.tuples(names, contents), max_size=3).map(tuple),
        timestamp=st.integers(0, 2**42),
    ),
    min_size=1,
    max_size=12,
)


def facts(records: Any) -> list[tuple[Any, ...]]:
    """What a record of ours and one of a foreign library have in common."""
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


def stored(records: list[Record], base_offset: int) -> list[tuple[Any, ...]]:
    return [
        (base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)
    ]


def view(data: bytes) -> memoryview:
    return memoryview(data)


@pytest.mark.parametrize(("builder", "reader", "codec"), FOREIGN)
@settings(max_examples=25)
@given(records=record_lists, base_offset=st.integers(0, 2**62))
def test_foreign_libraries_read_what_we_write(
    builder: object,
    reader: Callable[[bytes], Any],
    codec: int,
    records: list[Record],
    base_offset: int,
) -> None:
    data = encode(records, codec=codec, base_offset=base_offset, producer=(7, 3, 40))
    found = reader(data)
    assert found.validate_crc()
    assert (found.base_offset, found.magic, found.compression_type) == (base_offset, 2, codec)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 3, 40)
    times = [record.timestamp or 0 for record in records]
    assert (found.first_timestamp, found.max_timestamp) == (times[0], max(times))
    assert found.last_offset_delta == len(records) - 1
    assert facts(found) == stored(records, base_offset)


@pytest.mark.parametrize(("builder", "reader", "codec"), FOREIGN)
@settings(max_examples=25)
@given(records=record_lists, repeats=st.sampled_from([1, 40]))
def test_we_read_what_foreign_libraries_write(
    builder: Callable[..., Any], reader: object, codec: int, records: list[Record], repeats: int
) -> None:
    records = records * repeats  # a library leaves alone what does not shrink
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
        batch_size=10**7,
    )
    for i, record in enumerate(records):
        made.append(i, record.timestamp, record.key, record.value, list(record.headers))
    data = bytes(made.build())
    header = check_produced(view(data))
    assert header.attributes == (codec if repeats > 1 else header.attributes & codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
    assert header.size == len(data)
    moved = stamp(1_000, header.length, 5) + data[16:]
    assert check_stored(view(moved), 0, 1_000).leader_epoch == 5
    assert facts(decode(view(moved))) == stored(records, 1_000)


def test_records_carry_where_they_were_read() -> None:
    data = encode([Record(value=b"a", timestamp=1)], base_offset=8)
    (record,) = decode(view(data), topic="orders", partition=3)
    assert record == Record(value=b"a", timestamp=1, topic="orders", partition=3, offset=8)


def test_records_without_a_time_get_the_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "now_ms", lambda: 123_456)
    data = encode([Record(value=b"a"), Record(value=b"b", timestamp=5)])
    assert [record.timestamp for record in decode(view(data))] == [123_456, 5]
    assert read_header(data).max_timestamp == 123_456


def test_append_time_is_stamped_over_the_producers() -> None:
    data = encode([Record(value=b"a", timestamp=5), Record(value=b"b", timestamp=9)], codec=4)
    padded = b"before" + data
    header = check_batch(view(padded), 6)
    stamped = stamp(70, header.length, 0) + with_append_time(view(padded), header, 6, 8_000)
    found = AiokafkaBatch(stamped + data[HEADER_BYTES:])
    assert found.validate_crc()
    assert found.timestamp_type == 1
    assert [(record.offset, record.timestamp) for record in found] == [(70, 8_000), (71, 8_000)]
    after = list(decode(view(stamped + data[HEADER_BYTES:])))
    assert [record.timestamp for record in after] == [8_000, 8_000]
    assert read_header(stamped + data[HEADER_BYTES:]).attributes == APPEND_TIME | 4


def test_several_batches_and_none() -> None:
    data = encode([Record(value=b"a", timestamp=1)]) + encode(
        [Record(value=b"b", timestamp=2)], base_offset=1, codec=3
    )
    marker = raw_batch(raw_record(), base_offset=2, attributes=CONTROL | TRANSACTIONAL)
    assert [record.value for record in decode(view(data + marker))] == [b"a", b"b"]
    assert list(decode(view(b""))) == []


@pytest.mark.parametrize("check", [check_batch, check_produced, check_stored])
def test_a_damaged_batch_is_refused_wherever_it_is(check: Callable[[memoryview], object]) -> None:
    data = encode([Record(value=b"some value", timestamp=1)])
    check(view(data))
    for size in range(len(data)):
        with pytest.raises(CorruptBatch):
            check(view(data[:size]))
    for bit in range(8 * 16, 8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatch):
            check(memoryview(flipped))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    data = bytearray(encode([Record(value=b"a", timestamp=1)]))
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch, match=f"claims {length + 12} bytes"):
        check_batch(memoryview(data))


def test_an_old_format_is_refused_with_a_hint() -> None:
    data = bytearray(encode([Record(value=b"a", timestamp=1)]))
    data[16] = 1
    with pytest.raises(CorruptBatch, match=r"(?s)format 1 instead of 2.*hint: use a client"):
        check_batch(memoryview(data))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (raw_batch(b"", records=0), "0 records"),
        (raw_batch(raw_record(), records=-1), "-1 records"),
        (raw_batch(raw_record(), last_delta=5), "last offset delta of 5"),
        (raw_batch(raw_record(), attributes=CONTROL), "control"),
        (raw_batch(raw_record(), attributes=6), "codec 6"),
        (raw_batch(raw_record() + b"\0"), "do not add up"),
        (raw_batch(raw_record(size=9)), "do not add up"),
        (raw_batch(raw_record(size=-1)), "do not add up"),
        (raw_batch(raw_record(size=-200)), "do not add up"),
        (raw_batch(raw_record(), records=2), "do not add up"),
        (raw_batch(raw_record(size=2**40)), "do not add up"),
        (raw_batch(b"\xfe" * 4), "beyond its record|do not add up"),
        (raw_batch(b"\xfe" * 12), "64 bits"),
    ],
    ids=lambda given: given if isinstance(given, str) else "batch",
)
def test_what_a_producer_may_not_send(data: bytes, why: str) -> None:
    with pytest.raises(CorruptBatch, match=why):
        check_produced(view(data))
    with pytest.raises(CorruptBatch, match=why):  # also when there is more to stumble into
        check_produced(view(b"xx" + data + bytes(300)), 2)


@settings(max_examples=150)
@given(record_lists, st.integers(0, 10**6), st.integers(0, 255))
def test_what_can_be_read_can_be_produced(records: list[Record], at: int, byte: int) -> None:
    data = bytearray(encode(records))
    data[HEADER_BYTES + at % (len(data) - HEADER_BYTES)] = byte
    changed = sealed(bytes(data))
    if plain(changed) is not None:
        check_produced(view(changed))


@pytest.mark.parametrize("size", [1, 63, 64, 100, 8_191, 8_192, 20_000, 2_000_000])
def test_the_walk_over_lengths_of_every_width(size: int) -> None:
    records = [Record(value=bytes(size), timestamp=1)] * 3
    check_produced(view(encode(records)))


def test_stored_offsets_must_rise() -> None:
    data = encode([Record(value=b"a", timestamp=1)], base_offset=5)
    assert check_stored(view(data), 0, 5).next_offset == 6
    with pytest.raises(CorruptBatch, match="begins at offset 5, where 6 or more is due"):
        check_stored(view(data), 0, 6)
    with pytest.raises(CorruptBatch, match="offset 5"):
        list(decode(view(data + data)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_those_of_kafka(value: int) -> None:
    foreign = bytearray()
    encode_varint(value, foreign.append)
    ours = bytearray()
    write_varint(ours, value)
    assert ours == foreign
    assert read_varint(ours, 0, len(ours)) == (value, len(ours))
    assert read_varint(b"?" + ours + b"?", 1, 1 + len(ours)) == (value, 1 + len(ours))
    with pytest.raises(CorruptBatch, match="beyond its record"):
        read_varint(ours, 0, len(ours) - 1)


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\xff" * 10, b"\x80" * 10 + b"\x01"])
def test_a_varint_has_at_most_64_bits(data: bytes) -> None:
    with pytest.raises(CorruptBatch, match="more than 64 bits"):
        read_varint(data, 0, len(data))


def test_a_varint_may_be_longer_than_it_has_to() -> None:
    assert read_varint(b"\x82\x80\x00", 0, 3) == (1, 3)
    assert varint(1) == b"\x02"
