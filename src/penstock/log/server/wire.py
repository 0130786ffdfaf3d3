"""Kafka's primitive types, for the two messages that are read and written by hand.

A message is flexible from some version on: lengths are then variable and tagged fields follow.
"""

import struct

from penstock.errors import InvalidInput

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

_NO_TAGS = b"\0"

# In all arrays of a request: each element is answered with an object and many bytes.
MAX_ELEMENTS = 100_000


class Reader:
    """Reads forward; whatever lies beyond the frame raises InvalidInput."""

    __slots__ = ("_at", "_data", "_elements", "_flexible")

    def __init__(self, data: memoryview, at: int, *, flexible: bool) -> None:
        self._data = data
        self._at = at
        self._flexible = flexible
        self._elements = 0

    def _take(self, size: int) -> int:
        at = self._at
        if size < 0 or size > len(self._data) - at:
            raise InvalidInput(f"a field of {size} bytes does not fit the frame")
        self._at = at + size
        return at

    def int16(self) -> int:
        return int(_INT16.unpack_from(self._data, self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack_from(self._data, self._take(4))[0])

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise InvalidInput("a length of more than five bytes")

    def legacy_string(self) -> bytes:
        """A string with a fixed length field, as in request headers of any version."""
        size = max(self.int16(), 0)  # -1 is null
        at = self._take(size)
        return bytes(self._data[at : at + size])

    def string(self) -> bytes:
        """Empty for null."""
        if not self._flexible:
            return self.legacy_string()
        size = max(self._uvarint() - 1, 0)
        at = self._take(size)
        return bytes(self._data[at : at + size])

    def blob(self) -> memoryview:
        """Empty for null; a view, valid as long as the frame is."""
        size = max((self._uvarint() - 1) if self._flexible else self.int32(), 0)
        at = self._take(size)
        return self._data[at : at + size]

    def array(self) -> int:
        """The number of elements."""
        count = max((self._uvarint() - 1) if self._flexible else self.int32(), 0)
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise InvalidInput(f"an array of {count} elements is too much")
        return count

    def tags(self) -> None:
        if self._flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())


class Writer:
    """A response frame; `finish` puts the size in front."""

    __slots__ = ("_flexible", "out")

    def __init__(self, correlation_id: int, *, flexible: bool) -> None:
        self._flexible = flexible
        self.out = bytearray(struct.pack(">ii", 0, correlation_id))
        self.tags()

    def int16(self, value: int) -> None:
        self.out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.out += _INT64.pack(value)

    def _uvarint(self, value: int) -> None:
        while value >= 0x80:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def string(self, content: bytes | None) -> None:
        if self._flexible:
            self._uvarint(0 if content is None else len(content) + 1)
        else:
            self.int16(-1 if content is None else len(content))
        self.out += content or b""

    def array(self, count: int) -> None:
        """The length of an array; -1 is null."""
        self._uvarint(count + 1) if self._flexible else self.int32(count)

    blob = array  # the length of a blob is written alike

    def tags(self) -> None:
        if self._flexible:
            self.out += _NO_TAGS

    def finish(self, elsewhere: int = 0) -> bytes:
        """The frame; `elsewhere` counts bytes that are sent from files in between."""
        _INT32.pack_into(self.out, 0, len(self.out) - 4 + elsewhere)
        return bytes(self.out)
