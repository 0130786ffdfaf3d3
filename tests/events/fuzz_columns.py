"""Breaks batches at random under fitting checksums and holds the compiled decoder to the plain one.

Run as a program, with the seed and the number of rounds, so that a crash is seen from outside. The
data ends where a page begins that may not be touched: reading one byte too many is a crash.
"""

import ctypes
import mmap
import random
import sys

from penstock.events.batch import encode
from penstock.events.columns import decode_columns
from penstock.events.record import Record
from tests.events.both_decoders import compiled, plain
from tests.events.raw_batches import raw_batch, sealed

NASTY = (b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff", b"\xff" * 9 + b"\x01", b"\x80" * 10)
PAGE = mmap.PAGESIZE


def guarded(data: bytes, beyond: int = 0) -> memoryview:
    """The data in front of a page that may not be read, and `beyond` bytes of that page."""
    pages = -(-len(data) // PAGE) * PAGE
    space = mmap.mmap(-1, pages + PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(space))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(start + pages), ctypes.c_size_t(PAGE), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    space[pages - len(data) : pages] = data
    return memoryview(space)[pages - len(data) : pages + beyond]


def some_bytes(chance: random.Random, most: int) -> bytes | None:
    return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(most))


def some_records(chance: random.Random) -> list[Record]:
    return [
        Record(
            key=some_bytes(chance, 12),
            value=some_bytes(chance, 200),
            headers=tuple(
                ("h" * chance.randrange(4), some_bytes(chance, 9))
                for _ in range(chance.choice((0, 0, 1, 3)))
            ),
            timestamp=chance.randrange(-5, 2**41),
        )
        for _ in range(chance.randrange(1, 6))
    ]


def broken(chance: random.Random, data: bytes, first: int) -> bytes:
    """The data with a few bytes changed, put in or taken out from `first` on."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(first, len(out))
        match chance.randrange(4):
            case 0:
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at : at + 1] = chance.choice(NASTY)
            case 2:
                out[at:at] = chance.choice(NASTY)
            case 3:
                del out[at : at + chance.randrange(1, 4)]
        if len(out) <= first:
            break
    return bytes(out)


def one_round(chance: random.Random) -> bool:
    """Whether the data was still accepted, by both decoders."""
    records = some_records(chance)
    before = encode(some_records(chance))
    after = encode(some_records(chance), base_offset=100)
    whole = encode(records, base_offset=10)
    if chance.random() < 0.3:  # a packed batch is broken before it is packed
        body = broken(chance, whole[61:], 0)
        codec = chance.randrange(1, 5)
        middle = raw_batch(body, records=len(records), base_offset=10, base_time=1_000, codec=codec)
    else:
        middle = sealed(broken(chance, whole, chance.choice((21, 61))).ljust(61, b"\0"))
    data = guarded(before + middle + (after if chance.random() < 0.5 else b""))
    expected, found = plain(data), compiled(data)
    if expected != found:
        sys.exit(f"the decoders differ on {bytes(data)!r}: {expected} and {found}")
    return expected is not None


def read_up_to_what_is_durable(chance: random.Random) -> None:
    """What lies beyond the durable offset may be taken away at any time, even from a map."""
    records = some_records(chance)
    for codec in (0, 4):
        data = guarded(encode(records, codec=codec), beyond=100)
        found = decode_columns(data, until_offset=len(records))
        if found.batch.num_rows != len(records):
            sys.exit(f"{found.batch.num_rows} of {len(records)} records")


if __name__ == "__main__":
    seed, rounds = map(int, sys.argv[1:])
    chance = random.Random(seed)
    read_up_to_what_is_durable(chance)
    accepted = sum(one_round(chance) for _ in range(rounds))
    sys.stdout.write(f"{accepted} of {rounds} accepted\n")
