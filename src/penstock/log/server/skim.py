"""A look at a request's lengths before the codec reads it, because the codec believes them.

It takes room for as many elements as an array claims, and a process that cannot have the room ends;
it reads nothing at all where an array must be; and it knows no tags but those of its schema, where
the protocol says to skip the others. So every length is held against the frame here, and unknown
tags are cut out.
"""

import struct
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin

from penstock.errors import InvalidInput

# Of one array: each element becomes an object, and another in the answer.
MAX_ELEMENTS = 100_000

_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
}
_INT16 = struct.Struct(">h").unpack_from
_INT32 = struct.Struct(">i").unpack_from
_HEADER_BYTES = 8  # key, version and correlation id

Skip = Callable[["Skim", int], int]
"""Takes where a part of the frame begins and gives where it ends."""


class Skim:
    """One frame on its way through; `cuts` are the ranges to replace, in order."""

    __slots__ = ("cuts", "frame")

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.cuts: list[tuple[int, int, bytes]] = []

    def mended(self) -> bytes:
        mended, at = bytearray(), 0
        for start, end, content in self.cuts:
            mended += self.frame[at:start] + content
            at = end
        return bytes(mended) + self.frame[at:]


def skimmer(request: type[Any]) -> Callable[[bytes], bytes]:
    """A function from a frame to the frame as the codec may read it.

    It raises InvalidInput for one whose lengths lead beyond it.
    """
    body = _entity(request)
    flexible = request.__header_schema__.__version__ >= 2
    header_tags = _tags({}) if flexible else None

    def skim(frame: bytes) -> bytes:
        state = Skim(frame)
        try:
            at = _legacy_string(state, _HEADER_BYTES)  # the client's name, in all versions
            if header_tags is not None:
                at = header_tags(state, at)
            at = body(state, at)
        except (IndexError, struct.error) as beyond:
            raise InvalidInput("a length leads beyond the frame") from beyond
        if at > len(frame):
            raise InvalidInput("a length leads beyond the frame")
        return state.mended() if state.cuts else frame

    return skim


def _entity(kind: type[Any]) -> Skip:
    flexible: bool = kind.__flexible__
    steps: list[int | Skip] = []
    tagged: dict[int, Skip] = {}
    for field in fields(kind):
        step = _field(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = _step(step)
        elif steps and isinstance(step, int) and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)
    if flexible:
        steps.append(_tags(tagged))
    if len(steps) == 1:
        return _step(steps[0])

    def skip(state: Skim, at: int) -> int:
        for step in steps:
            at = at + step if isinstance(step, int) else step(state, at)
        return at

    return skip


def _step(step: int | Skip) -> Skip:
    return (lambda state, at: at + step) if isinstance(step, int) else step


def _field(field: Field[Any], flexible: bool) -> int | Skip:
    kind, nullable = _without_none(field.type)
    name = field.metadata.get("kafka_type", "")
    if get_origin(kind) is tuple:
        element = _without_none(get_args(kind)[0])[0]
        return _array(_one(element, name, flexible), flexible, -1 if nullable else 0)
    one = _one(kind, name, flexible)
    return _nullable(_step(one)) if nullable and is_dataclass(kind) else one


def _without_none(kind: Any) -> tuple[Any, bool]:
    kinds = get_args(kind)
    if NoneType not in kinds:
        return kind, False
    return next(each for each in kinds if each is not NoneType), True


def _one(kind: Any, name: str, flexible: bool) -> int | Skip:
    if is_dataclass(kind):
        return _entity(kind)  # type: ignore[arg-type]
    if name in _SIZES:
        return _SIZES[name]
    if flexible:
        return _compact
    return _legacy_string if name == "string" else _legacy_bytes


def _array(element: int | Skip, flexible: bool, least: int) -> Skip:
    def skip(state: Skim, at: int) -> int:
        if flexible:
            count, at = _uvarint(state.frame, at)
            count -= 1
        else:
            count, at = _INT32(state.frame, at)[0], at + 4
        if not least <= count <= min(len(state.frame) - at, MAX_ELEMENTS):
            raise InvalidInput(f"an array claims {count} elements")
        if isinstance(element, int):
            return at + element * max(count, 0)
        for _ in range(count):
            at = element(state, at)
        return at

    return skip


def _nullable(entity: Skip) -> Skip:
    def skip(state: Skim, at: int) -> int:
        return at + 1 if state.frame[at] >= 0x80 else entity(state, at + 1)

    return skip


def _tags(known: dict[int, Skip]) -> Skip:
    def skip(state: Skim, start: int) -> int:
        frame = state.frame
        if frame[start] == 0:
            return start + 1
        count, at = _uvarint(frame, start)
        kept, cuts = [], len(state.cuts)
        for _ in range(count):
            begins = at
            tag, at = _uvarint(frame, at)
            size, at = _uvarint(frame, at)
            if tag in known:
                # What is cut out inside a tag would change the size it says.
                if known[tag](state, at) != at + size or len(state.cuts) > cuts:
                    raise InvalidInput(f"tag {tag} is not as long as it says")
                kept.append(frame[begins : at + size])
            at += size
        if len(kept) < count:
            state.cuts.append((start, at, bytes([len(kept)]) + b"".join(kept)))
        return at

    return skip


def _uvarint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise InvalidInput("a length of more than five bytes")


def _compact(state: Skim, at: int) -> int:
    size, at = _uvarint(state.frame, at)
    return at + max(size - 1, 0)


def _legacy_string(state: Skim, at: int) -> int:
    size: int = _INT16(state.frame, at)[0]
    return at + 2 + max(size, 0)


def _legacy_bytes(state: Skim, at: int) -> int:
    size: int = _INT32(state.frame, at)[0]
    return at + 4 + max(size, 0)
