"""The order of a view's rows: by the columns of its key, numbers as numbers, null first.

Every table has an index in this order, so that a page costs what its rows cost. A page begins after
a place, which is a row's values in the order and not the row itself: that may be gone by then.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from penstock.errors import InvalidInput
from penstock.serve.catalog import Kept, quoted

Place = tuple[Any, ...]


def terms(kept: Kept, table: str = "") -> list[str]:
    """What rows are ordered by, in SQL, the bytes of their keys last: two keys may differ in these
    alone, such as decimals that are near the same number.

    A decimal is text to SQLite, and is ordered by the number nearest to it; those of more than 15
    digits that are near the same one come in the order of their digits.
    """
    found = []
    for name in kept.key:
        column = kept.column(name)
        if column is not None and column.form == "decimal":
            found.append(f"CAST({table}{quoted(name)} AS REAL)")
        found.append(f"{table}{quoted(name)}")
    return [*found, f"{table}_key"]


def index(kept: Kept, of: str) -> str:
    """The statement that makes the index of `kept.table` or `kept.history`."""
    name = quoted(f"{of[1:-1]} by key".replace('""', '"'))
    return f"CREATE INDEX {name} ON {of} ({', '.join(terms(kept)[:-1])}, _key)"


class Stretch(NamedTuple):
    """Rows one after the other: those that fit all conditions, in an order that leaves out what
    they have in common."""

    conditions: list[str]
    values: list[Any]
    order: str


def stretches(kept: Kept, after: Place | None) -> Iterator[Stretch]:
    """One after the other they are all rows that come after the place.

    As one statement, with OR between the conditions, they would make SQLite look at all rows.
    """
    names = terms(kept)
    if after is None:
        yield Stretch([], [], ", ".join(names))
        return
    for count in reversed(range(len(names))):
        same = [f"{name} IS ?" for name in names[:count]]
        name, order = names[count], ", ".join(names[count:])
        if after[count] is None:
            yield Stretch([*same, f"{name} IS NOT NULL"], list(after[:count]), order)
        else:
            yield Stretch([*same, f"{name} > ?"], list(after[: count + 1]), order)


def write_place(place: Sequence[Any]) -> bytes:
    return json.dumps(
        [{"bytes": b64encode(v).decode()} if isinstance(v, bytes) else v for v in place],
        separators=(",", ":"),
    ).encode()


def read_place(kept: Kept, text: bytes) -> Place:
    """Raises InvalidInput for what is no place in this view."""
    try:
        place = tuple(
            b64decode(each["bytes"], validate=True) if isinstance(each, dict) else each
            for each in json.loads(text)
        )
        fits = len(place) == len(terms(kept)) and isinstance(place[-1], bytes)
        plain = all(each is None or isinstance(each, int | float | str | bytes) for each in place)
        small = all(-(2**63) <= each < 2**63 for each in place if isinstance(each, int))
        if fits and plain and small:
            return place
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise InvalidInput(
        f"this is no place between two pages of view {kept.name!r}",
        hint="give the `next` of the page before",
    )
