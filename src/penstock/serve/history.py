"""The versions of a view's rows: from which batch on each was valid, and up to which.

`@batches` says of each batch that changed the view when it was done, and which offsets it stands
for in the view's topic and in those that its node reads. A version costs what its change costs;
what is older than the view keeps is taken away by the changes that follow.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.serve import ordering
from penstock.serve.catalog import Kept, last_batch, quoted, versions_of
from penstock.serve.changelog import Cut, Spans
from penstock.serve.columns import sql_values

_BATCHES = """
CREATE TABLE IF NOT EXISTS "@batches" (
    view INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    read TEXT NOT NULL,
    PRIMARY KEY (view, batch)
) WITHOUT ROWID
"""
_INSTANT = "strftime('%Y-%m-%dT%H:%M:%fZ', \"{}\" / 1000.0, 'unixepoch')"


def create_batches(connection: sqlite3.Connection) -> None:
    connection.execute(_BATCHES)
    connection.execute(
        'CREATE INDEX IF NOT EXISTS "@batches by time" ON "@batches" (view, at_ms, batch)'
    )


def create_history(connection: sqlite3.Connection, kept: Kept) -> None:
    columns = ", ".join(f"{quoted(each.name)} {each.sql_type}" for each in kept.columns)
    connection.execute(
        f'CREATE TABLE {kept.history} (_key BLOB, "@from" INTEGER, "@to" INTEGER, '
        f'"@from_ms" INTEGER, "@to_ms" INTEGER, {columns}, '
        'PRIMARY KEY (_key, "@from")) WITHOUT ROWID'
    )
    connection.execute(ordering.index(kept, kept.history))
    for end in ("@from", "@to"):
        index = quoted(f"{kept.name}@{kept.id} by {end}")
        connection.execute(f"CREATE INDEX {index} ON {kept.history} ({quoted(end)})")


def show_history(connection: sqlite3.Connection, kept: Kept) -> None:
    """The SQL view `<view>_versions`, with the times of each version."""
    connection.execute(
        f"CREATE VIEW {quoted(versions_of(kept.name))} AS SELECT {kept.names}, "
        f"{_INSTANT.format('@from_ms')} AS valid_from, {_INSTANT.format('@to_ms')} AS valid_to "
        f'FROM {kept.history} WHERE "@to" IS NULL OR "@to" > "@from"'
    )


def add_versions(
    connection: sqlite3.Connection,
    kept: Kept,
    keys: pa.Array,
    rows: pa.RecordBatch,
    batches: NDArray[np.int64],
    done_ms: Mapping[int, int],
) -> None:
    """`batches` has the batch of each row; of one key's rows in one batch the last counts."""
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    order = np.lexsort((batches, codes))  # stable: rows of one key and batch stay as they came
    codes, batches = codes[order], batches[order]
    is_last = np.append((codes[1:] != codes[:-1]) | (batches[1:] != batches[:-1]), True)
    order, codes, batches = order[is_last], codes[is_last], batches[is_last]
    is_new_key = codes[1:] != codes[:-1]
    first, is_open = pa.array(np.insert(is_new_key, 0, True)), np.append(is_new_key, True)

    numbers = np.array(sorted(done_ms), np.int64)
    times = np.array([done_ms[number] for number in numbers.tolist()], np.int64)
    done = times[np.searchsorted(numbers, batches)]
    from_batch, from_ms = pa.array(batches), pa.array(done)
    to_batch = pa.array(np.roll(batches, -1), mask=is_open)
    to_ms = pa.array(np.roll(done, -1), mask=is_open)

    keys, rows = keys.take(pa.array(order)), rows.take(pa.array(order))
    connection.executemany(
        f'UPDATE {kept.history} SET "@to" = ?, "@to_ms" = ? WHERE _key = ? AND "@to" IS NULL',
        _tuples(each.filter(first) for each in (from_batch, from_ms, keys)),
    )
    present = pa.array(~rows["_deleted"].to_numpy(zero_copy_only=False))
    fresh = rows.filter(present)
    ends = [each.filter(present) for each in (keys, from_batch, to_batch, from_ms, to_ms)]
    values = [sql_values(fresh[each.name], each.form) for each in kept.columns]
    marks = ", ".join("?" * (len(ends) + len(values)))
    connection.executemany(
        f"INSERT OR REPLACE INTO {kept.history} VALUES ({marks})",
        zip(*(each.to_pylist() for each in ends), *values, strict=True),
    )


def _tuples(columns: Iterable[pa.Array]) -> Iterable[tuple[Any, ...]]:
    return zip(*(each.to_pylist() for each in columns), strict=True)


def add_batches(
    connection: sqlite3.Connection,
    kept: Kept,
    cut: Cut,
    changed: Collection[int],
    done_ms: Mapping[int, int],
    read_by: Callable[[int], Spans],
) -> None:
    """Notes the batches of a cut that changed the view, each with where it stands in the view's
    topic and in those that its node reads."""
    moves: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for number, marks in cut.marks.items():
        for mark in marks:
            moves[mark.batch][number] = mark.end
    begins = dict(kept.offsets)
    for batch in sorted(moves):
        ends = begins | moves[batch]
        if batch in changed:
            own = {number: (begins.get(number, 0), end) for number, end in ends.items()}
            read = json.dumps({kept.topic: own, **read_by(batch)})
            connection.execute(
                'INSERT OR REPLACE INTO "@batches" VALUES (?, ?, ?, ?)',
                (kept.id, batch, done_ms[batch], read),
            )
        begins = ends


def prune(connection: sqlite3.Connection, kept: Kept, before_ms: int) -> int:
    """Takes away what was over before that time; returns from when on all is there."""
    found = last_batch(connection, kept, before_ms)
    if found is None:
        return kept.history_ms
    floor, from_ms = found
    connection.execute(f'DELETE FROM {kept.history} WHERE "@to" <= ?', (floor,))
    # The batch itself stays: it tells what was valid from then on.
    connection.execute('DELETE FROM "@batches" WHERE view = ? AND batch < ?', (kept.id, floor))
    return max(kept.history_ms, from_ms)
