import gzip
import random
from contextlib import suppress

import pyarrow as pa
import pytest
from aiokafka.codec import snappy_encode
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptBatch
from penstock.events import compression
from penstock.events.compression import CODECS, LZ4, SNAPPY, compress, decompress

PACKED = {name: codec for name, codec in CODECS.items() if codec}

# Random bytes, runs of one byte, and enough to pass the room that is tried first.
payloads = (
    st.binary(max_size=300)
    | st.tuples(st.binary(min_size=1, max_size=20), st.integers(0, 20_000)).map(
        lambda run: run[0] * run[1]
    )
    | st.integers(0, 9).map(lambda seed: random.Random(seed).randbytes(100_000))
)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@settings(max_examples=25)
@given(plain=payloads)
def test_what_is_packed_is_unpacked(codec: int, plain: bytes) -> None:
    packed = compress(codec, plain)
    for buffer in (packed, bytearray(packed), memoryview(packed)):
        assert decompress(codec, buffer) == plain


@pytest.mark.parametrize(("name", "codec"), PACKED.items(), ids=PACKED)
@settings(max_examples=25)
@given(plain=payloads)
def test_another_implementation_reads_and_writes_the_same(
    name: str, codec: int, plain: bytes
) -> None:
    ours = compress(codec, plain)
    assert pa.decompress(ours, len(plain), codec=name, asbytes=True) == plain
    theirs = pa.compress(plain, codec=name, asbytes=True)
    assert decompress(codec, theirs) == plain


def test_gzip_of_several_members() -> None:
    assert decompress(CODECS["gzip"], gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 300_000])
def test_snappy_in_blocks_as_java_sends_it(size: int) -> None:
    plain = bytes(range(256)) * (size // 256) + bytes(size % 256)
    packed = snappy_encode(plain, xerial_compatible=True)
    assert packed.startswith(b"\x82SNAPPY\x00")
    assert decompress(SNAPPY, packed) == plain


@pytest.mark.parametrize("damage", ["block cut off", "length cut off", "block too long"])
def test_snappy_in_blocks_that_lie(damage: str) -> None:
    packed = snappy_encode(b"plain" * 20_000, xerial_compatible=True)
    broken = {
        "block cut off": packed[:-1],
        "length cut off": packed + b"\0\0",
        "block too long": packed[:16] + b"\x7f" + packed[17:],
    }[damage]
    with pytest.raises(CorruptBatch):
        decompress(SNAPPY, broken)


def test_lz4_blocks_are_independent_as_java_wants_them() -> None:
    flags = compress(LZ4, bytes(200_000))[4]
    assert flags >> 6 == 1
    assert flags & 0x20


@pytest.mark.parametrize("codec", PACKED.values(), ids=PACKED)
def test_a_stream_cut_off_anywhere_is_refused(codec: int) -> None:
    packed = compress(codec, bytes(range(256)) * 2 + b"again and " * 50)
    for size in range(len(packed)):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size])


@pytest.mark.parametrize("codec", PACKED.values(), ids=PACKED)
@given(garbage=st.binary(max_size=200))
def test_garbage_is_refused_at_most(codec: int, garbage: bytes) -> None:
    packed = compress(codec, b"plain " * 100)
    at = len(garbage) % len(packed)
    for data in (garbage, packed[:4] + garbage, packed[:at] + garbage + packed[at + 1 :]):
        with suppress(CorruptBatch):  # and nothing else
            decompress(codec, data)


@pytest.mark.parametrize("codec", PACKED.values(), ids=PACKED)
def test_a_bomb_is_stopped_at_the_limit(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_UNPACKED", 1_000_000)
    assert decompress(codec, compress(codec, bytes(1_000_000))) == bytes(1_000_000)
    with pytest.raises(CorruptBatch, match="more than 1000000 bytes"):
        decompress(codec, compress(codec, bytes(1_000_001)))


def test_a_bomb_of_many_snappy_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_UNPACKED", 1_000_000)
    assert len(decompress(SNAPPY, snappy_encode(bytes(1_000_000)))) == 1_000_000
    with pytest.raises(CorruptBatch, match="more than 1000000 bytes"):
        decompress(SNAPPY, snappy_encode(bytes(1_000_001)))


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(CorruptBatch, match=f"codec {codec} is unknown"):
        compress(codec, b"plain")
    with pytest.raises(CorruptBatch, match=f"codec {codec} is unknown"):
        decompress(codec, b"packed")
