"""The four codecs of record batches, by their number in a batch's attributes."""

from collections.abc import Callable

import cramjam

from penstock.errors import CorruptBatch

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"none": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

# A batch is at most a few megabytes; one that unpacks to more than this is an attack, not data.
MAX_UNPACKED = 128 * 1024 * 1024

_XERIAL = b"\x82SNAPPY\x00"  # Java clients frame snappy in blocks; librdkafka sends it bare
_XERIAL_HEADER = 16


def compress(codec: int, data: bytes) -> bytes:
    match codec:
        case 0:
            return data
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            # Java clients refuse blocks that lean on the ones before them.
            packer = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            packer.compress(data)
            return bytes(packer.finish())
        case 4:
            return bytes(cramjam.zstd.compress(data))
    raise CorruptBatch(f"compression codec {codec} is unknown")


def decompress(codec: int, data: bytes | bytearray | memoryview) -> bytes:
    """The plain bytes; CorruptBatch when they are broken or more than MAX_UNPACKED."""
    packed = bytes(data)
    try:
        match codec:
            case 0:
                return packed
            case 1:
                return _unpack(cramjam.gzip.decompress_into, packed)
            case 2:
                return _unsnappy(packed)
            case 3:
                return _unpack(cramjam.lz4.decompress_into, packed)
            case 4:
                return _unpack(cramjam.zstd.decompress_into, packed)
    except cramjam.DecompressionError as broken:
        raise CorruptBatch(f"the batch does not decompress: {broken}") from broken
    raise CorruptBatch(f"compression codec {codec} is unknown")


def _unpack(into: Callable[[bytes, bytearray], int], packed: bytes) -> bytes:
    """Unpacks into room that grows, so that a bomb is stopped at the limit and not after it."""
    room = max(65_536, 4 * len(packed))
    while True:
        plain = bytearray(min(room, MAX_UNPACKED))
        try:
            return bytes(memoryview(plain)[: into(packed, plain)])
        except cramjam.DecompressionError as broken:
            if "whole buffer" not in str(broken):
                raise
            if room >= MAX_UNPACKED:
                raise CorruptBatch(f"the batch unpacks to more than {MAX_UNPACKED} bytes") from None
        room *= 4


def _unsnappy(packed: bytes) -> bytes:
    if not packed.startswith(_XERIAL):
        return _unsnappy_block(packed)
    plain, position = bytearray(), _XERIAL_HEADER
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        position += 4
        plain += _unsnappy_block(packed[position : position + size])
        if len(plain) > MAX_UNPACKED:
            raise CorruptBatch(f"the batch unpacks to more than {MAX_UNPACKED} bytes")
        position += size
    return bytes(plain)


def _unsnappy_block(packed: bytes) -> bytes:
    if cramjam.snappy.decompress_raw_len(packed) > MAX_UNPACKED:
        raise CorruptBatch(f"the batch unpacks to more than {MAX_UNPACKED} bytes")
    return bytes(cramjam.snappy.decompress_raw(packed))
