"""Writing the file of an app's views: rows and offsets change in one transaction.

So, after any crash, a table is exactly the fold of its topic up to the offsets noted with it.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import clock
from penstock.errors import StorageFailed
from penstock.events.schema import schema_text
from penstock.serve import catalog, history
from penstock.serve.catalog import Kept, quoted
from penstock.serve.changelog import Cut, ViewSource
from penstock.serve.columns import columns_of, sql_values
from penstock.streams.source.keys import encode_keys


class ViewStore:
    """There is one for a file at a time, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _refusals(path):
            self._connection = _connected(path)
            (found,) = self._connection.execute("PRAGMA user_version").fetchone()
            if found not in (0, catalog.FORMAT):
                # Written by another release. All of it can be read from the log again.
                self._connection.close()
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
                self._connection = _connected(path)
            self._connection.execute("PRAGMA journal_mode = WAL")
            # What a power cut may take is read again from the log.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            with self._transaction():
                catalog.create(self._connection)
                history.create_batches(self._connection)
        self._path = path

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def tables(self) -> list[Kept]:
        return catalog.tables(self._connection)

    def forget_others(self, names: Collection[str]) -> None:
        """Removes the views that are not among these."""
        with _refusals(self._path), self._transaction():
            for kept in catalog.tables(self._connection):
                if kept.name not in names:
                    self._drop(kept)

    def open(self, source: ViewSource, identity: str, starts: Mapping[int, int]) -> Kept:
        """The table that goes on with what this source gives; a new one where none fits it.

        A new one is current at once where there is none, or where the topic of the present one is
        gone; otherwise it is built beside it, until `switch`.
        """
        with _refusals(self._path), self._transaction():
            present = catalog.tables(self._connection, source.name)
            for kept in present:
                if _fits(kept, source, identity):
                    self._connection.execute(
                        'UPDATE "@views" SET versions_ms = ? WHERE id = ?',
                        (source.versions_ms, kept.id),
                    )
                    return replace(kept, versions_ms=source.versions_ms)
            for kept in present:
                if not kept.is_current:  # something was being built that nobody wants any more
                    self._drop(kept)
            current = next((kept for kept in present if kept.is_current), None)
            made = self._make(source, identity, starts)
            if current is None or _is_gone(current, source, identity):
                return self._switch(made)
            return made

    def _make(self, source: ViewSource, identity: str, starts: Mapping[int, int]) -> Kept:
        columns = columns_of(source.schema)
        facts: dict[str, Any] = {
            "name": source.name,
            "generation": source.generation,
            "topic": source.topic,
            "identity": identity,
            "schema": schema_text(source.schema),
            "columns": json.dumps(columns),
            "key": json.dumps(source.key),
            "versions_ms": source.versions_ms,
            "history_ms": 0,
            "is_current": False,
            "batch": -1,
            "at_ms": 0,
            "offsets": json.dumps(dict(starts)),
        }
        inserted = self._connection.execute(
            f'INSERT INTO "@views" ({", ".join(facts)}) VALUES ({", ".join("?" * len(facts))})',
            tuple(facts.values()),
        )
        (made,) = [
            kept
            for kept in catalog.tables(self._connection, source.name)
            if kept.id == inserted.lastrowid
        ]
        typed = ", ".join(f"{quoted(each.name)} {each.sql_type}" for each in columns)
        self._connection.execute(
            f"CREATE TABLE {made.table} (_key BLOB PRIMARY KEY, {typed}) WITHOUT ROWID"
        )
        by = ", ".join(map(quoted, made.key))
        index = quoted(f"{made.name}@{made.id} by key")
        self._connection.execute(f"CREATE INDEX {index} ON {made.table} ({by})")
        if made.versions_ms is not None:
            history.create_history(self._connection, made)
        return made

    def switch(self, kept: Kept) -> Kept:
        """Shows this table under the view's name from now on, and removes all others of it."""
        with _refusals(self._path), self._transaction():
            return self._switch(kept)

    def _switch(self, kept: Kept) -> Kept:
        for other in catalog.tables(self._connection, kept.name):
            if other.id != kept.id:
                self._drop(other)
        self._connection.execute(
            f"CREATE VIEW {quoted(kept.name)} AS SELECT {kept.names} FROM {kept.table}"
        )
        if kept.versions_ms is not None:
            history.show_history(self._connection, kept)
        self._connection.execute('UPDATE "@views" SET is_current = 1 WHERE id = ?', (kept.id,))
        return replace(kept, is_current=True)

    def _drop(self, kept: Kept) -> None:
        if kept.is_current:
            self._connection.execute(f"DROP VIEW {quoted(kept.name)}")
            if kept.versions_ms is not None:
                self._connection.execute(f"DROP VIEW {quoted(catalog.versions_of(kept.name))}")
        self._connection.execute(f"DROP TABLE {kept.table}")
        if kept.versions_ms is not None:
            self._connection.execute(f"DROP TABLE {kept.history}")
            self._connection.execute('DELETE FROM "@batches" WHERE view = ?', (kept.id,))
        self._connection.execute('DELETE FROM "@views" WHERE id = ?', (kept.id,))

    def apply(
        self,
        kept: Kept,
        source: ViewSource,
        cut: Cut,
        rows: Iterable[tuple[int, pa.RecordBatch]],
        done_ms: Mapping[int, int],
    ) -> Kept:
        """Brings the table to the cut: `rows` are all between what is noted and there, each with
        its partition, and `done_ms` says of each batch when it was done."""
        kept = replace(kept, at_ms=max(done_ms.values()))
        changed: set[int] = set()
        with _refusals(self._path), self._transaction():
            for partition, some in rows:
                keys = _keys(some, kept)
                self._upsert(kept, keys, some)
                if kept.versions_ms is not None:
                    batches = cut.batches_at(partition, some["_offset"].to_numpy())
                    history.add_versions(self._connection, kept, keys, some, batches, done_ms)
                    changed.update(np.unique(batches).tolist())
            if kept.versions_ms is not None:
                read_by = source.batches.read_by
                history.add_batches(self._connection, kept, cut, changed, done_ms, read_by)
                oldest = clock.now_ms() - kept.versions_ms
                kept = replace(kept, history_ms=history.prune(self._connection, kept, oldest))
            kept = replace(kept, batch=cut.batch, offsets=dict(cut.ends))
            self._connection.execute(
                'UPDATE "@views" SET batch = ?, at_ms = ?, history_ms = ?, offsets = ? '
                "WHERE id = ?",
                (kept.batch, kept.at_ms, kept.history_ms, json.dumps(kept.offsets), kept.id),
            )
        return kept

    def _upsert(self, kept: Kept, keys: pa.Array, rows: pa.RecordBatch) -> None:
        """Of one key's rows the last counts."""
        codes = keys.dictionary_encode().indices.to_numpy()
        last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        np.maximum.at(last, codes, np.arange(len(codes)))
        chosen = pa.array(np.sort(last))
        keys, rows = keys.take(chosen), rows.take(chosen)
        deleted = rows["_deleted"]
        gone = keys.filter(deleted).to_pylist()
        self._connection.executemany(
            f"DELETE FROM {kept.table} WHERE _key = ?", ((key,) for key in gone)
        )
        present = pa.array(~deleted.to_numpy(zero_copy_only=False))
        keys, rows = keys.filter(present), rows.filter(present)
        values = [sql_values(rows[each.name], each.form) for each in kept.columns]
        # The columns of the key stay what they are, and so does their index.
        others = [quoted(each.name) for each in kept.columns if each.name not in kept.key]
        change = ", ".join(f"{name} = excluded.{name}" for name in others)
        self._connection.executemany(
            f"INSERT INTO {kept.table} VALUES (?{', ?' * len(values)}) "
            f"ON CONFLICT (_key) DO {f'UPDATE SET {change}' if change else 'NOTHING'}",
            zip(keys.to_pylist(), *values, strict=True),
        )


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)


def _fits(kept: Kept, source: ViewSource, identity: str) -> bool:
    return (
        (kept.generation, kept.topic, kept.identity) == (source.generation, source.topic, identity)
        and kept.schema == schema_text(source.schema)
        and kept.key == source.key
        and (kept.versions_ms is None) == (source.versions_ms is None)
    )


def _is_gone(kept: Kept, source: ViewSource, identity: str) -> bool:
    """Whether the topic of a table was made again under its name: nothing is left of the old."""
    return kept.topic == source.topic and kept.identity != identity


def _keys(rows: pa.RecordBatch, kept: Kept) -> pa.Array:
    """Those of the records; one that somebody has put there by hand may have none."""
    keys = rows["_key"]
    return pc.coalesce(keys, encode_keys(rows, kept.key)) if keys.null_count else keys


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageFailed(
            f"{path} cannot be written: {error}", hint="is the disk full, or the file damaged?"
        ) from error
