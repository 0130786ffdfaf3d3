"""Writing the file of an app's views: rows and offsets change in one transaction.

So, after any crash, a table is exactly the fold of its topic up to the offsets noted with it, and
tables that move together are at the same batch.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock import clock
from penstock.errors import StorageFailed
from penstock.events.schema import schema_text
from penstock.serve import catalog, history, ordering
from penstock.serve.catalog import Kept, quoted
from penstock.serve.changelog import Changes, Cut, ViewSource
from penstock.serve.columns import columns_of
from penstock.serve.upserts import keys_of, upsert

_STATEMENTS = 1024  # that stay prepared: a handful for each view


@dataclass(frozen=True)
class Move:
    """What brings one table to a cut: `changes` are all between what is noted and there."""

    kept: Kept
    source: ViewSource
    cut: Cut
    changes: Iterable[Changes] = ()


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
        """The table that goes on with what this source gives; a new one where none fits it, which
        is not shown yet. The present one goes where its topic is gone."""
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
                # Something was being built that nobody wants any more.
                if not kept.is_current or _is_gone(kept, source, identity):
                    self._drop(kept)
            return self._make(source, identity, starts)

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
        self._connection.execute(ordering.index(made, made.table))
        if made.versions_ms is not None:
            history.create_history(self._connection, made)
        return made

    def switch(self, tables: Iterable[Kept]) -> list[Kept]:
        """Shows these tables under their views' names, and removes all others of them."""
        with _refusals(self._path), self._transaction():
            return [self._switch(kept) for kept in tables]

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
        moves: Sequence[Move],
        at_ms: int,
        done_ms: Mapping[int, int],
        *,
        switch: bool = False,
    ) -> list[Kept]:
        """Brings all tables to their cuts, which are after the same batch, done at `at_ms`, or
        none. `done_ms` says when each batch was done that changes a view with versions. With
        `switch`, the tables are those that are shown from then on."""
        with _refusals(self._path), self._transaction():
            moved = [self._move(each, at_ms, done_ms) for each in moves]
            self._connection.executemany(
                'UPDATE "@views" SET batch = ?, at_ms = ? WHERE id = ?',
                [(kept.batch, kept.at_ms, kept.id) for kept in moved],
            )
            return [self._switch(kept) for kept in moved] if switch else moved

    def _move(self, move: Move, at_ms: int, done_ms: Mapping[int, int]) -> Kept:
        kept, cut = move.kept, move.cut
        if not cut.marks:
            return replace(kept, batch=cut.batch, at_ms=at_ms)
        changed: set[int] = set()
        for rows, batches in move.changes:
            keys = keys_of(rows, kept)
            upsert(self._connection, kept, keys, rows)
            if kept.versions_ms is not None:
                history.add_versions(self._connection, kept, keys, rows, batches, done_ms)
                changed.update(np.unique(batches).tolist())
        history_ms = kept.history_ms
        if kept.versions_ms is not None:
            read_by = move.source.batches.read_by
            history.add_batches(self._connection, kept, cut, changed, done_ms, read_by)
            oldest = clock.now_ms() - kept.versions_ms
            history_ms = history.prune(self._connection, kept, oldest)
        self._connection.execute(
            'UPDATE "@views" SET history_ms = ?, offsets = ? WHERE id = ?',
            (history_ms, json.dumps(cut.ends), kept.id),
        )
        return replace(
            kept, batch=cut.batch, at_ms=at_ms, history_ms=history_ms, offsets=dict(cut.ends)
        )


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        timeout=30.0,
        cached_statements=_STATEMENTS,
    )


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


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageFailed(
            f"{path} cannot be written: {error}", hint="is the disk full, or the file damaged?"
        ) from error
