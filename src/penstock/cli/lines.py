"""Lines of a file or a pipe as records, in chunks of what is there."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.errors import InvalidInput
from penstock.events.record import Record

BLOCK_BYTES = 512 * 1024


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


_JSON = json.JSONDecoder(parse_constant=_refuse)


@dataclass(frozen=True)
class LineFormat:
    """How a line becomes a record: what is its key, and whether it must be JSON.

    A `key_field` is a top-level field of the line's JSON object; its text is the key, and a null
    there is none.
    """

    json: bool = False
    key_separator: str = ""
    key_field: str = ""

    def record(self, line: bytes) -> Record:
        """Raises ValueError with what is wrong with the line."""
        key, value = None, line
        if self.key_separator:
            key, found, value = line.partition(self.key_separator.encode())
            if not found:
                raise ValueError(f"there is no {self.key_separator!r} between key and value")
        if self.json:
            value = value.strip()
            content = _parsed(value)
            if self.key_field:
                key = _key(content, self.key_field)
        return Record(key=key, value=value)


def _parsed(value: bytes) -> Any:
    try:
        return _JSON.decode(value.decode())
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos + 1}"
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} is not UTF-8"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"this is not JSON: {reason}")


def _key(content: Any, field: str) -> bytes | None:
    if not isinstance(content, dict) or field not in content:
        raise ValueError(f"there is no field {field!r}")
    key = content[field]
    if key is None or isinstance(key, str):
        return None if key is None else key.encode()
    return json.dumps(key, separators=(",", ":")).encode()


class LineReader:
    """Iterates over lists of records, each made of the whole lines that could be read at once.

    Raises InvalidInput at a line that is no record, after all before it have been handed out.
    """

    def __init__(self, file: int, name: str, form: LineFormat, *, longest: int) -> None:
        """`file` is a descriptor, open for reading; a line has at most `longest` bytes."""
        self._file = file
        self._name = name
        self._form = form
        self._longest = longest
        self.line = 0
        """The number of the last line that was looked at."""
        self.blank = 0
        """How many lines of nothing but white space were left out, which is done for JSON only."""
        self.bytes = 0

    def __iter__(self) -> Iterator[list[Record]]:
        for lines in self._whole_lines():
            records: list[Record] = []
            for line in lines:
                self.line += 1
                if self._form.json and not line.strip():
                    self.blank += 1
                    continue
                try:
                    records.append(self._record(line))
                except ValueError as wrong:
                    yield records
                    raise self._failed(wrong) from None
            yield records

    def _record(self, line: bytes) -> Record:
        if len(line) > self._longest:
            raise ValueError(f"this is longer than {self._longest} bytes")
        return self._form.record(line)

    def _whole_lines(self) -> Iterator[list[bytes]]:
        rest = bytearray()
        while block := os.read(self._file, BLOCK_BYTES):
            self.bytes += len(block)
            end = block.rfind(b"\n")
            if end < 0:
                rest += block
                if len(rest) > self._longest:  # no end in sight
                    break
                continue
            rest += block[:end]
            yield bytes(rest).split(b"\n")
            rest = bytearray(block[end + 1 :])
        if rest:
            yield [bytes(rest)]

    def _failed(self, wrong: ValueError) -> InvalidInput:
        before = f"the lines before line {self.line} are in the log" if self.line > 1 else ""
        return InvalidInput(f"{self._name}, line {self.line}: {wrong}", hint=before)
