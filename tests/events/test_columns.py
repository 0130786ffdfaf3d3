import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptBatch, InvalidInput
from penstock.events import column_loops, columns
from penstock.events.batch import APPEND_TIME, CONTROL, encode, read_header
from penstock.events.columns import SCHEMA, Columns, decode_columns, iter_columns, read_segment
from penstock.events.record import Record
from tests.events import fuzz_columns
from tests.events.both_decoders import compiled, plain, rows_of
from tests.events.raw_batches import raw_batch, raw_record, varint

CODECS = (0, 1, 2, 3, 4)
ROOT = Path(__file__).parents[2]

contents = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=400)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
records = st.builds(
    Record,
    key=contents,
    value=contents,
    headers=st.lists(st.tuples(names, contents), max_size=3).map(tuple),
    timestamp=st.integers(-(2**61), 2**61) | st.integers(1_700_000_000_000, 1_700_000_100_000),
)
batches = st.lists(
    st.tuples(
        st.lists(records, min_size=1, max_size=8), st.sampled_from(CODECS), st.integers(0, 300)
    ),
    max_size=6,
)


def laid_out(parts: list[tuple[list[Record], int, int]]) -> bytes:
    """One batch for each part; the last number of a part is a gap in the offsets before it."""
    data, offset = b"", 0
    for content, codec, gap in parts:
        data += encode(content, codec=codec, base_offset=offset + gap)
        offset += gap + len(content)
    return data


def numbered(count: int, base_offset: int = 0, **options: Any) -> bytes:
    """A batch whose values are its records' offsets."""
    content = [Record(value=b"%d" % (base_offset + i), timestamp=1_000 + i) for i in range(count)]
    return encode(content, base_offset=base_offset, **options)


def offsets_of(piece: Columns) -> list[int]:
    offsets: list[int] = piece.batch["offset"].to_pylist()
    if "value" in piece.batch.schema.names:
        assert piece.batch["value"].to_pylist() == [b"%d" % offset for offset in offsets]
    return offsets


@settings(max_examples=50)
@given(batches)
def test_gives_what_the_plain_decoder_gives(parts: list[tuple[list[Record], int, int]]) -> None:
    data = laid_out(parts)
    assert compiled(data) == plain(data)
    assert plain(data) is not None


@settings(max_examples=50)
@given(batches, st.integers(0, 900), st.integers(0, 900), st.integers(1, 12))
def test_gives_the_offsets_asked_for(
    parts: list[tuple[list[Record], int, int]], start: int, end: int, rows: int
) -> None:
    data = laid_out(parts)
    expected = [row for row in plain(data) or [] if start <= (row[0] or 0) < end]
    whole = decode_columns(data, from_offset=start, until_offset=end)
    assert rows_of(whole) == expected
    pieces = list(iter_columns(data, from_offset=start, until_offset=end, rows=rows))
    assert [row for piece in pieces for row in rows_of(piece)] == expected
    assert (pieces[-1].end, pieces[-1].next_offset) == (whole.end, whole.next_offset)


@settings(max_examples=50)
@given(batches, st.integers(0, 900))
def test_goes_on_where_it_ended(parts: list[tuple[list[Record], int, int]], cut: int) -> None:
    data = laid_out(parts)
    first = decode_columns(data, until_offset=cut)
    assert first.next_offset <= cut
    rest = iter_columns(data, at=first.end, from_offset=first.next_offset)
    assert rows_of(first) + [row for piece in rest for row in rows_of(piece)] == plain(data)


def test_the_schema_and_the_order_asked_for() -> None:
    data = encode([Record(value=b"v", timestamp=5)])
    assert decode_columns(data).batch.schema.equals(SCHEMA)
    batch = decode_columns(data, columns=["offset", "headers", "value"]).batch
    assert batch.schema.names == ["offset", "headers", "value"]
    assert batch.to_pylist() == [{"offset": 0, "headers": [], "value": b"v"}]
    assert batch.schema.field("headers").type == SCHEMA.field("headers").type


@pytest.mark.parametrize("asked", [(), ("value", "partition")])
def test_refuses_columns_that_are_not_there(asked: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(numbered(1))
    with pytest.raises(InvalidInput, match="key, value, timestamp"):
        decode_columns(numbered(1), columns=asked)
    with pytest.raises(InvalidInput):
        iter_columns(numbered(1), columns=asked)
    with pytest.raises(InvalidInput):
        read_segment(tmp_path / "log", columns=asked)


@pytest.mark.parametrize("name", ["at", "from_offset", "until_offset"])
@pytest.mark.parametrize("number", [-1, -(2**63), 2**63, 2**80])
def test_refuses_numbers_that_cannot_be(name: str, number: int) -> None:
    asked: dict[str, Any] = {name: number}
    with pytest.raises(InvalidInput, match="from 0 to"):
        list(iter_columns(numbered(1), **asked))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_reads_any_buffer(kind: type[bytes] | type[bytearray] | type[memoryview]) -> None:
    assert offsets_of(decode_columns(kind(numbered(3)))) == [0, 1, 2]


def test_append_time_overrules_the_records() -> None:
    body = raw_record(time=2**63 - 1) + raw_record(delta=1, time=-7)
    stamped = {"records": 2, "base_time": 50, "max_time": 900}
    data = raw_batch(body, attributes=APPEND_TIME, **stamped)
    assert decode_columns(data).batch["timestamp"].cast("int64").to_pylist() == [900, 900]
    assert compiled(data) == plain(data)
    assert compiled(raw_batch(body, **stamped)) is None


def test_control_batches_are_passed_over() -> None:
    marker = raw_batch(raw_record(), base_offset=2, attributes=CONTROL)
    gibberish = raw_batch(b"not records", base_offset=3, attributes=CONTROL | 4, records=1)
    whole = decode_columns(numbered(2) + marker + gibberish + numbered(2, base_offset=4))
    assert offsets_of(whole) == [0, 1, 4, 5]
    last = decode_columns(marker)
    assert (last.batch.num_rows, last.end, last.next_offset) == (0, len(marker), 3)


def test_a_batch_emptied_by_compaction() -> None:
    empty = raw_batch(b"", records=0, last_delta=7)
    found = decode_columns(empty)
    assert (found.batch.num_rows, found.end, found.next_offset) == (0, len(empty), 8)
    assert compiled(empty) == plain(empty) == []


def test_names_that_are_not_text_are_mended() -> None:
    header = varint(3) + b"a\xff\xc3" + varint(-1)
    data = raw_batch(raw_record(headers=varint(1) + header)) + numbered(1, base_offset=1)
    mended = decode_columns(data, columns=["headers"]).batch.to_pylist()
    assert mended == [{"headers": [{"key": "a��", "value": None}]}, {"headers": []}]
    assert compiled(data) == plain(data)


LONGEST = b"\xff" * 9 + b"\x01"  # the varint of -2**63
HOSTILE = {
    "a record longer than its batch": raw_record(size=100),
    "a record of negative length": raw_record(size=-2),
    "a record of no length": varint(0),
    "a record shorter than its fields": raw_record(size=5) + bytes(2),
    "a record longer than its fields": raw_record(size=8) + bytes(1),
    "a key longer than its record": raw_record(key=varint(90)),
    "a key of length -2": raw_record(key=varint(-2)),
    "a key as long as can be": raw_record(key=b"\xfe" + b"\xff" * 8 + b"\x01"),
    "a value as negative as can be": raw_record(value=LONGEST),
    "a value past the batch": raw_record(value=varint(2**31)),
    "a number of eleven bytes": raw_record(time=b"\x80" * 10 + b"\x00"),
    "a number of 65 bits": raw_record(time=b"\x80" * 9 + b"\x02"),
    "a number cut off": raw_record(headers=b"\x80"),
    "headers below zero": raw_record(headers=varint(-1)),
    "headers beyond counting": raw_record(headers=varint(2**62)),
    "headers that are not there": raw_record(headers=varint(1)),
    "a header without a name": raw_record(headers=varint(1) + varint(-1) + varint(-1)),
    "a header that is no name": raw_record(headers=varint(1) + varint(-1)),
    "a header's name past the record": raw_record(headers=varint(1) + varint(9) + b"name"),
    "a header's value past the record": raw_record(headers=varint(1) + varint(0) + varint(9)),
    "a header's value of length -2": raw_record(headers=varint(1) + varint(0) + varint(-2)),
    "an offset before its batch": raw_record(delta=-1),
    "an offset after its batch": raw_record(delta=1),
    "an offset as large as can be": raw_record(delta=b"\xfe" + b"\xff" * 8 + b"\x01"),
    "bytes after the last record": raw_record() + bytes(1),
    "nothing": b"",
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_refuses_records_that_lie(body: bytes, codec: int) -> None:
    sound = numbered(2, codec=codec)
    data = sound + raw_batch(body, base_offset=2, codec=codec) + numbered(1, base_offset=3)
    with pytest.raises(CorruptBatch, match=f"at byte {len(sound)}: ") as refusal:
        decode_columns(data)
    assert refusal.value.position == len(sound)
    assert refusal.value.hint
    assert plain(data) is None


LYING = {
    "fewer records than none": raw_batch(b"", records=-1, last_delta=0),
    "fewer records than there are": raw_batch(raw_record(), records=0, last_delta=0),
    "more records than there are": raw_batch(raw_record(), records=2),
    "more records than fit": raw_batch(raw_record(), records=2**31 - 1),
    "more records than offsets": raw_batch(raw_record(), last_delta=-1),
    "offsets that end before they begin": raw_batch(b"", records=0, last_delta=-5),
    "an offset below zero": raw_batch(raw_record(), base_offset=-1),
    "an offset at the end of numbers": raw_batch(raw_record(), base_offset=2**63 - 1),
    "an offset past the end of numbers": raw_batch(
        raw_record(delta=9), last_delta=2**31 - 1, base_offset=2**63 - 9
    ),
    "an offset twice": raw_batch(
        raw_record(delta=1) + raw_record(delta=1), records=2, last_delta=5
    ),
    "offsets that fall": raw_batch(raw_record(delta=1) + raw_record(), records=2, last_delta=5),
    "a time past 64 bits": raw_batch(raw_record(time=1), base_time=2**63 - 1),
    "a time before 64 bits": raw_batch(raw_record(time=-1), base_time=-(2**63)),
    "a codec that is not used": raw_batch(raw_record(), attributes=4),
    "a codec that is not known": raw_batch(raw_record(), attributes=5),
}


@pytest.mark.parametrize("batch", LYING.values(), ids=LYING.keys())
def test_refuses_headers_that_lie(batch: bytes) -> None:
    assert compiled(batch) is None
    assert plain(batch) is None


def test_the_outermost_numbers_are_read() -> None:
    data = raw_batch(
        raw_record(time=2**62) + raw_record(delta=2**31 - 2, time=-(2**62)),
        records=2,
        last_delta=2**31 - 1,
        base_offset=2**63 - 2**31 - 1,
        base_time=2**62 - 1,
    )
    times = decode_columns(data).batch["timestamp"].cast("int64").to_pylist()
    assert times == [2**63 - 1, -1]
    assert decode_columns(data).batch["offset"].to_pylist() == [2**63 - 2**31 - 1, 2**63 - 3]
    assert compiled(data) == plain(data)


def test_refuses_offsets_that_go_back() -> None:
    data = numbered(3) + numbered(1, base_offset=2)
    with pytest.raises(CorruptBatch, match="begins at offset 2, where 3 or more is due"):
        decode_columns(data)
    assert plain(data) is None


@pytest.mark.parametrize("codec", [0, 4])
def test_any_flipped_bit_is_reported_where_it_is(codec: int, tmp_path: Path) -> None:
    first, second = numbered(3, codec=codec), numbered(3, 3, codec=codec)
    path = tmp_path / "log"
    for bit in range(8 * 8, 8 * len(second)):  # the offset before has no checksum
        flipped = bytearray(second)
        flipped[bit // 8] ^= 1 << bit % 8
        if bit // 8 in range(12, 16):  # nor has the epoch, which is not read
            assert offsets_of(decode_columns(first + flipped)) == [0, 1, 2, 3, 4, 5]
            continue
        path.write_bytes(first + flipped)
        with pytest.raises(CorruptBatch) as refusal:
            list(read_segment(path))
        assert (refusal.value.file, refusal.value.position) == (str(path), len(first))


def test_the_end_may_be_cut_off_but_not_in_a_segment(tmp_path: Path) -> None:
    first, second = numbered(2), numbered(2, base_offset=2)
    data, path = first + second, tmp_path / "log"
    for size in range(len(data)):
        found = decode_columns(data[:size])
        whole = size >= len(first)
        assert offsets_of(found) == ([0, 1] if whole else [])
        assert (found.end, found.next_offset) == ((len(first), 2) if whole else (0, 0))
        path.write_bytes(data[:size])
        if size in (0, len(first)):
            assert [offsets_of(piece) for piece in read_segment(path)] == [offsets_of(found)]
            continue
        with pytest.raises(CorruptBatch) as refusal:
            list(read_segment(path))
        assert refusal.value.position == found.end
        if whole:
            assert [offsets_of(piece) for piece in read_segment(path, until_offset=2)] == [[0, 1]]


def test_nothing_is_looked_at_beyond_the_durable_offset(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for tail in (b"\xff" * 100, numbered(1)[:-1], numbered(1, base_offset=2)[:-1] + b"?"):
        path.write_bytes(numbered(2) + tail)
        assert [offsets_of(piece) for piece in read_segment(path, until_offset=2)] == [[0, 1]]
        with pytest.raises(CorruptBatch):
            list(read_segment(path))


def test_a_torn_batch_after_a_gap_lies_beyond_the_durable_offset() -> None:
    data = numbered(2) + numbered(1, base_offset=5)[:-1] + b"?"
    found = decode_columns(data, until_offset=5)
    assert (offsets_of(found), found.next_offset) == ([0, 1], 2)
    with pytest.raises(CorruptBatch):
        decode_columns(data, until_offset=6)


def test_a_segment_is_read_from_a_position_on(tmp_path: Path) -> None:
    path, skipped = tmp_path / "log", numbered(5)
    path.write_bytes(skipped + numbered(5, base_offset=5, codec=2))
    pieces = list(read_segment(str(path), at=len(skipped), from_offset=7, columns=["offset"]))
    assert [offsets_of(piece) for piece in pieces] == [[7, 8, 9]]
    assert (pieces[0].end, pieces[0].next_offset) == (path.stat().st_size, 10)


def test_a_map_can_be_closed_once_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(numbered(3))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = decode_columns(data)
    assert offsets_of(found) == [0, 1, 2]


@pytest.mark.parametrize("codec", [0, 3])
def test_pieces_have_the_rows_asked_for(codec: int) -> None:
    data = b"".join(numbered(10, base_offset=10 * i, codec=codec) for i in range(10))
    pieces = list(iter_columns(data, rows=25))
    assert [piece.batch.num_rows for piece in pieces] == [30, 30, 30, 10]
    assert [piece.next_offset for piece in pieces] == [30, 60, 90, 100]
    assert [offset for piece in pieces for offset in offsets_of(piece)] == list(range(100))
    assert [read_header(data, piece.end).base_offset for piece in pieces[:-1]] == [30, 60, 90]
    assert [piece.batch.num_rows for piece in iter_columns(data, rows=20)] == [20] * 5
    assert [piece.batch.num_rows for piece in iter_columns(data, rows=1)] == [10] * 10


@pytest.mark.parametrize("codec", [0, 3])
def test_pieces_stay_within_a_size(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(numbered(10, base_offset=10 * i, codec=codec) for i in range(10))
    monkeypatch.setattr(columns, "CHUNK_BYTES", 250)  # a batch has 91 or 101 bytes of records
    assert [piece.batch.num_rows for piece in iter_columns(data)] == [20, 20, 20, 20, 20]
    monkeypatch.setattr(columns, "CHUNK_BYTES", 50)
    assert [piece.batch.num_rows for piece in iter_columns(data)] == [10] * 10


def test_more_than_a_batch_of_arrow_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_ARROW_BYTES", 250)
    data = b"".join(numbered(10, base_offset=10 * i) for i in range(3))
    with pytest.raises(InvalidInput, match="use iter_columns"):
        decode_columns(data)


@settings(max_examples=30)
@given(st.lists(st.sampled_from(CODECS), min_size=1, max_size=40), st.integers(1, 3))
def test_many_small_batches_packed_or_not(codecs: list[int], size: int) -> None:
    data = b"".join(
        numbered(size, base_offset=size * i, codec=codec) for i, codec in enumerate(codecs)
    )
    assert offsets_of(decode_columns(data)) == list(range(size * len(codecs)))


def test_more_batches_than_are_framed_at_a_time() -> None:
    data = b"".join(numbered(1, base_offset=i) for i in range(2_500))
    assert offsets_of(decode_columns(data)) == list(range(2_500))


def test_each_kernel_was_compiled_once() -> None:
    data = raw_batch(raw_record(headers=varint(1) + varint(0) + varint(0)))
    decode_columns(bytearray(data), until_offset=0)
    decode_columns(data + numbered(3, base_offset=1, codec=1), from_offset=1, until_offset=3)
    for kernel in (
        "frame_batches",
        "index_records",
        "index_headers",
        "place_fields",
        "copy_fields",
    ):
        assert len(getattr(column_loops, kernel).signatures) <= 1, kernel


def test_batches_broken_at_random_do_no_harm(tmp_path: Path) -> None:
    compiling = {
        "NUMBA_BOUNDSCHECK": "1",  # a kernel that goes astray raises IndexError
        "NUMBA_OPT": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    done = subprocess.run(
        [sys.executable, fuzz_columns.__file__, "20", "1500"],
        env=os.environ | compiling,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("of 1500 accepted\n")


def test_the_buffers_are_arrows_own() -> None:
    before = pa.total_allocated_bytes()
    found = decode_columns(encode([Record(value=bytes(10_000), timestamp=0)]))
    assert pa.total_allocated_bytes() - before >= 10_000
    assert found.batch["value"][0].as_py() == bytes(10_000)
