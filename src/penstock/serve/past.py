"""A view with versions as it was after an earlier batch, and what has changed between two."""

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.clock import instant_text
from penstock.errors import InvalidInput
from penstock.events.record import Position
from penstock.serve import ordering
from penstock.serve.catalog import Kept, last_batch, quoted

Row = tuple[Any, ...]


class Difference(NamedTuple):
    """A row that came, went or changed: None where there is none."""

    before: Row | None
    after: Row | None


def as_of(kept: Kept, batch: int, more: str = "") -> str:
    """The statement that gives the rows after this batch, to which conditions may be added."""
    return f"SELECT {more}{kept.names} FROM {kept.history} WHERE {_is_valid('', batch)}"


def _is_valid(table: str, batch: int) -> str:
    """By the key or in its order: the plus keeps SQLite from the indexes of batches, of which most
    are earlier or later."""
    return f'+{table}"@from" <= {batch} AND (+{table}"@to" IS NULL OR +{table}"@to" > {batch})'


def batch_at(connection: sqlite3.Connection, kept: Kept, when: int | Position) -> int:
    """The batch after which the view was as at that time (milliseconds), or as when its node had
    just read that position; -1 before the first.

    A position is one of the view's own topic or of one that its node reads, and the view has seen
    it. Raises InvalidInput when versions are not kept, or not for so long.
    """
    if kept.versions_ms is None:
        raise InvalidInput(
            f"view {kept.name!r} keeps no versions, so nobody knows how it was",
            hint=f'app.view("{kept.name}", ..., versions="7 days") keeps them for so long',
        )
    if isinstance(when, Position):
        return _batch_of(connection, kept, when)
    if when < kept.history_ms:
        raise _too_long_ago(kept)
    found = last_batch(connection, kept, when)
    return -1 if found is None else found[0]


def _batch_of(connection: sqlite3.Connection, kept: Kept, position: Position) -> int:
    _check_known(connection, kept, position)
    found = _first_to_read(connection, kept, position)
    if found is None:  # it was read by a batch that changed nothing, after all others
        return kept.batch
    batch, (began, _) = found
    if began <= position.offset:
        return batch
    # The batch that read it changed nothing: the one before is how things were.
    before = _batch(connection, kept, "batch < ? ORDER BY batch DESC", batch)
    if before is None and not kept.history_ms:
        return -1
    if before is None or _span(before[1], position) is None:
        raise _too_long_ago(kept)
    return before[0]


def _first_to_read(
    connection: sqlite3.Connection, kept: Kept, position: Position
) -> tuple[int, list[int]] | None:
    """The first batch that has read beyond the position, and from where to where; by halves, as
    later ones have read further."""
    low, high, found = -1, kept.batch, None
    while low <= high:
        middle = (low + high) // 2
        there = _batch(connection, kept, "batch >= ? ORDER BY batch", middle)
        if there is None or there[0] > high:
            high = middle - 1
            continue
        batch, span = there[0], _span(there[1], position)
        if span is not None and span[1] > position.offset:
            found, high = (batch, span), middle - 1
        else:
            low = batch + 1
    return found


def _batch(
    connection: sqlite3.Connection, kept: Kept, which: str, number: int
) -> tuple[int, str] | None:
    found: tuple[int, str] | None = connection.execute(
        f'SELECT batch, read FROM "@batches" WHERE view = ? AND {which} LIMIT 1', (kept.id, number)
    ).fetchone()
    return found


def _span(read: str, position: Position) -> list[int] | None:
    """From where to where a batch has read the partition, None if nobody knows."""
    span: list[int] | None = json.loads(read).get(position.topic, {}).get(str(position.partition))
    return span


def _check_known(connection: sqlite3.Connection, kept: Kept, position: Position) -> None:
    (last,) = connection.execute(
        'SELECT read FROM "@batches" WHERE view = ? ORDER BY batch DESC LIMIT 1', (kept.id,)
    ).fetchone() or (json.dumps({kept.topic: {}}),)
    topics = list(json.loads(last))
    if position.topic not in topics:
        raise InvalidInput(
            f"nobody knows how view {kept.name!r} was at a position of {position.topic!r}",
            hint=f"give a time, or a position of: {', '.join(topics)}",
        )


def _too_long_ago(kept: Kept) -> InvalidInput:
    since = instant_text(kept.history_ms) if kept.history_ms else "its last rebuild"
    return InvalidInput(
        f"view {kept.name!r} no longer knows how it was so long ago",
        hint=f"its versions go back to {since}; versions= says how long they are kept",
    )


def differences(
    connection: sqlite3.Connection, kept: Kept, before: int, after: int
) -> Iterator[Difference]:
    """In the order of their keys; its cost follows what has changed between the two batches."""
    width = len(kept.columns)
    names = [quoted(each.name) for each in kept.columns]
    chosen = ", ".join([*(f"o.{name}" for name in names), *(f"n.{name}" for name in names)])
    both = zip(ordering.terms(kept, "o."), ordering.terms(kept, "n."), strict=True)
    order = ", ".join(f"coalesce({old}, {new})" for old, new in both)
    rows = connection.execute(
        f'WITH changed AS (SELECT _key FROM {kept.history} WHERE "@from" > ?1 AND "@from" <= ?2 '
        f'UNION SELECT _key FROM {kept.history} WHERE "@to" > ?1 AND "@to" <= ?2) '
        f"SELECT o._key IS NOT NULL, n._key IS NOT NULL, {chosen} FROM changed c "
        f"LEFT JOIN {kept.history} o ON o._key = c._key AND {_is_valid('o.', before)} "
        f"LEFT JOIN {kept.history} n ON n._key = c._key AND {_is_valid('n.', after)} "
        f"ORDER BY {order}",
        (before, after),
    )
    for was, is_there, *values in rows:
        old = tuple(values[:width]) if was else None
        new = tuple(values[width:]) if is_there else None
        if old != new:
            yield Difference(old, new)
