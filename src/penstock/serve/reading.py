"""Reading the file of an app's views, while the app that writes it runs or not.

Whoever reads sees the state after one batch, never half of one, and never waits for the writer. All
that is read by one opened reader is read in one transaction, whatever is written or built anew
meanwhile, so views of one group are at the same batch.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from penstock import clock
from penstock.errors import InvalidInput, StorageFailed, UnknownName, did_you_mean
from penstock.events.record import Position
from penstock.serve import catalog, ordering, past
from penstock.serve.catalog import Kept, quoted
from penstock.serve.columns import asked_value

MAX_ROWS = 10_000  # of a page
MAX_SECONDS = 10.0  # for a page
_OPERATORS = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_STEPS = 10_000  # of SQLite's machine, between two calls of Python
_NO_TABLE = re.compile(r"no such table: (?:\w+\.)?(.+)")
_TABLE = re.compile(r"(.+)@\d+(?: versions)?")


class Filter(NamedTuple):
    """A condition on a column; the operator is one of eq, gt, gte, lt, lte. The value is as in
    JSON, and None is for null, which nothing but eq finds."""

    column: str
    operator: str
    value: str | None


class Page(NamedTuple):
    """Rows in the order of their keys, and the place after which the next page begins, if any."""

    rows: list[tuple[Any, ...]]
    next: bytes | None


def is_kept(path: Path) -> bool:
    """Whether there is a file of views, and not only the beginnings of one."""
    if not path.exists():
        return False
    with _snapshot(path) as connection:
        return _has_format(connection)


@contextmanager
def opened(path: Path) -> Iterator["ViewReader"]:
    """The views as they are now, and stay for this reader; who waits for them to change opens
    again. Raises UnknownName when there are no views, StorageFailed when the file cannot be read.
    """
    unknown = UnknownName(
        f"no view is kept in {path}", hint="@app.view(...) declares one, penstock run builds it"
    )
    if not path.exists():
        raise unknown
    with _snapshot(path) as connection:
        if not _has_format(connection):
            raise unknown
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        yield ViewReader(connection)


def _has_format(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that sees the file as it is at its first statement."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(
            sqlite3.connect(address, uri=True, timeout=30.0, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN")
            yield connection
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError):
            raise
        raise StorageFailed(f"{path} cannot be read: {error}") from error


class ViewReader:
    """Belongs to one thread."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def views(self) -> list[Kept]:
        return [kept for kept in catalog.tables(self._connection) if kept.is_current]

    def find(self, name: str) -> Kept:
        """Raises UnknownName, with the names there are."""
        for kept in catalog.tables(self._connection, name):
            if kept.is_current:
                return kept
        raise unknown_view(name, [each.name for each in self.views()])

    def row(self, kept: Kept, key: bytes, *, batch: int | None = None) -> tuple[Any, ...] | None:
        """The row of a key, now or after a batch."""
        if batch is None:
            found = self._connection.execute(
                f"SELECT {kept.names} FROM {kept.table} WHERE _key = ?", (key,)
            )
        else:
            found = self._connection.execute(f"{past.as_of(kept, batch)} AND _key = ?", (key,))
        row: tuple[Any, ...] | None = found.fetchone()
        return row

    def page(
        self,
        kept: Kept,
        filters: Sequence[Filter] = (),
        *,
        limit: int = MAX_ROWS,
        after: bytes | None = None,
        batch: int | None = None,
    ) -> Page:
        """Rows that fit, after a place; as they are now or were after a batch. Raises InvalidInput
        when they are not found in time, as where filters leave few rows of many."""
        source = kept.table if batch is None else f"({past.as_of(kept, batch, '_key, ')})"
        terms = ordering.terms(kept)
        place = None if after is None else ordering.read_place(kept, after)
        conditions, values = _where(kept, filters)
        rows: list[tuple[Any, ...]] = []
        deadline = clock.monotonic() + MAX_SECONDS
        self._connection.set_progress_handler(lambda: clock.monotonic() > deadline, _STEPS)
        try:
            for each in ordering.stretches(kept, place):
                where = _all([*each.conditions, *conditions])
                rows += self._connection.execute(
                    f"SELECT {', '.join(terms)}, {kept.names} FROM {source}{where} "
                    f"ORDER BY {each.order} LIMIT ?",
                    (*each.values, *values, limit + 1 - len(rows)),
                )
                if len(rows) > limit:
                    break
        except sqlite3.OperationalError as error:
            if str(error) != "interrupted":
                raise
            raise InvalidInput(
                f"the rows of view {kept.name!r} were not found within {MAX_SECONDS:g} s",
                hint=f"filters on its key ({', '.join(kept.key)}) are fast, others look at every "
                "row; penstock query takes its time",
            ) from error
        finally:
            self._connection.set_progress_handler(None, 0)
        goes_on = len(rows) > limit
        return Page(
            [row[len(terms) :] for row in rows[:limit]],
            ordering.write_place(rows[limit - 1][: len(terms)]) if goes_on else None,
        )

    def scan(self, kept: Kept, filters: Sequence[Filter] = ()) -> Iterator[tuple[Any, ...]]:
        """All rows that fit, in the order of their keys."""
        conditions, values = _where(kept, filters)
        order = ", ".join(ordering.terms(kept))
        yield from self._connection.execute(
            f"SELECT {kept.names} FROM {kept.table}{_all(conditions)} ORDER BY {order}", values
        )

    def views_read(self, sql: str) -> list[Kept]:
        """The views that a statement reads, found without running it."""
        with self._meaning():
            steps = self._connection.execute(f"EXPLAIN {sql}").fetchall()
        roots = {step[3] for step in steps if step[1] in ("OpenRead", "ReopenIdx")}
        tables = self._connection.execute("SELECT rootpage, tbl_name FROM sqlite_master")
        names = {
            found[1]
            for root, table in tables
            if root in roots and (found := _TABLE.fullmatch(table))
        }
        return [kept for kept in self.views() if kept.name in names]

    def select(
        self,
        sql: str,
        *,
        as_of: Mapping[str, int] | None = None,
    ) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The names of the columns of a statement, and its rows; `as_of` has the
        batches after which views are read, by their names.

        Ctrl-C ends it with KeyboardInterrupt. Raises InvalidInput and
        UnknownName for what is no statement on these views.
        """
        for kept in self.views():
            self._connection.execute(f"DROP VIEW IF EXISTS temp.{quoted(kept.name)}")
        for name, batch in (as_of or {}).items():
            kept = self.find(name)
            self._connection.execute(
                f"CREATE TEMP VIEW {quoted(kept.name)} AS {past.as_of(kept, batch)}"
            )
        # A signal is seen when Python is called; what it raises there ends the statement.
        self._connection.set_progress_handler(lambda: False, _STEPS)
        with self._meaning():
            rows = self._connection.execute(sql)
        names = [each[0] for each in rows.description or ()]
        return names, self._rows(rows)

    def _rows(self, rows: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        with self._meaning():
            yield from rows

    @contextmanager
    def _meaning(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            self._explain(error)
        except (sqlite3.ProgrammingError, sqlite3.Warning) as error:
            raise InvalidInput(f"this cannot be asked: {error}", hint="give one SELECT") from error

    def _explain(self, error: sqlite3.OperationalError) -> NoReturn:
        said = str(error)
        if said == "interrupted":
            raise KeyboardInterrupt from error
        if found := _NO_TABLE.fullmatch(said):
            raise unknown_view(found[1], [each.name for each in self.views()]) from error
        if said.startswith("no such column"):
            columns = (
                f"{kept.name} has {', '.join(column.name for column in kept.columns)}"
                for kept in self.views()
            )
            raise UnknownName(f"the query has {said}", hint="; ".join(columns)) from error
        if "readonly" in said or "cannot modify" in said:
            raise InvalidInput(
                "views are only read here", hint="what changes them are the topics they are made of"
            ) from error
        raise InvalidInput(
            f"SQLite refuses the query: {said}", hint="it is SQLite's own dialect of SQL"
        ) from error

    def batch_at(self, kept: Kept, when: int | Position) -> int:
        return past.batch_at(self._connection, kept, when)

    def differences(self, kept: Kept, before: int, after: int) -> Iterator[past.Difference]:
        return past.differences(self._connection, kept, before, after)


def unknown_view(name: str, names: Sequence[str]) -> UnknownName:
    there = f"there are: {', '.join(sorted(names))}" if names else "no view is kept yet"
    return UnknownName(f"there is no view {name!r}", hint=did_you_mean(name, names) or there)


def _where(kept: Kept, filters: Sequence[Filter]) -> tuple[list[str], list[Any]]:
    found = [_condition(kept, each) for each in filters]
    return [condition for condition, _ in found], [value for _, value in found]


def _all(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _condition(kept: Kept, asked: Filter) -> tuple[str, Any]:
    column = kept.column(asked.column)
    if column is None:
        raise InvalidInput(
            f"view {kept.name!r} has no column {asked.column!r}",
            hint=f"it has: {', '.join(each.name for each in kept.columns)}",
        )
    operator = _OPERATORS.get(asked.operator)
    if operator is None:
        raise InvalidInput(
            f"there is no comparison {asked.operator!r}",
            hint=f"{asked.column}=... or {asked.column}.gte=..., of: {', '.join(_OPERATORS)}",
        )
    name = quoted(column.name)
    if asked.value is None:
        return f"{name} {'IS' if operator == '=' else operator} ?", None
    if column.form == "decimal":
        name = f"CAST({name} AS REAL)"  # its text would sort as text
    return f"{name} {operator} ?", asked_value(asked.value, column)
