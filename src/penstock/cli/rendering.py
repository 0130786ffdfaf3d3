"""Records as lines: for programs as JSON, for people in columns and colours."""

import json
from base64 import b64encode
from datetime import datetime
from functools import lru_cache

from rich.highlighter import JSONHighlighter
from rich.text import Text

from penstock.cli.moment import local_time
from penstock.clock import instant_text
from penstock.events.record import Record

SHOWN_BYTES = 16  # of what is not text, on a terminal
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_highlighter = JSONHighlighter()


def json_line(record: Record) -> bytes:
    """One JSON object. Bytes that are not UTF-8 stand there as `{"base64": "..."}`.

    The timestamp is an ISO time in UTC, or a number of milliseconds where the calendar has none.
    """
    line = _JSON(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": _instant(record.timestamp),
            "key": _plain(record.key),
            "value": _plain(record.value),
            "headers": [[name, _plain(value)] for name, value in record.headers],
        }
    )
    return line.encode() + b"\n"


@lru_cache(1024)  # records that were sent together share their time
def _instant(timestamp: int | None) -> str | int | None:
    if timestamp is None:
        return None
    try:
        return instant_text(timestamp)
    except (ValueError, OverflowError):
        return timestamp


def _plain(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


class ForPeople:
    """One line a record: time of day, partition@offset, key and value; a line for each new day."""

    def __init__(self, now: datetime | None) -> None:
        """No line is written for the present day."""
        self._day = now and now.date()
        self._place_width = 0

    def line(self, record: Record) -> Text:
        """Ends without a newline; the first of a day has a line before it."""
        line = Text()
        moment = local_time(record.timestamp or 0)
        if moment is None:
            line.append(f"{record.timestamp} ms", "dim")
        else:
            if moment.date() != self._day:
                self._day = moment.date()
                line.append(f"── {moment:%A, %Y-%m-%d} ──\n", "dim")
            line.append(f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}", "dim")
        place = f"{record.partition}@{record.offset}"
        self._place_width = max(self._place_width, len(place))
        line.append(f"  {place:<{self._place_width}}  ", "cyan")
        if record.key is not None:
            line.append_text(_readable(record.key, "bold"))
            line.append("  ")
        line.append_text(_highlighted(_readable(record.value)))
        for name, value in record.headers:
            line.append(f"  {printable(name)}=", "dim")
            line.append_text(_readable(value, "dim"))
        return line


def _readable(content: bytes | None, style: str = "") -> Text:
    if content is None:
        return Text("null", "dim italic")
    try:
        return Text(printable(content.decode()), style)
    except UnicodeDecodeError:
        more = "…" if len(content) > SHOWN_BYTES else ""
        shown = f"<{len(content)} bytes: {content[:SHOWN_BYTES].hex(' ')}{more}>"
        return Text(shown, "magenta")


def printable(text: str) -> str:
    """Control characters written out: a record must not be able to steer somebody's terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def _highlighted(value: Text) -> Text:
    if value.plain[:1] in ("{", "[", '"'):
        _highlighter.highlight(value)
    return value
