"""What the file of an app's views says of them: which tables there are, and how far each has come.

`@views` has a row for every table, `<view>@<id>`. One is current for each view: the SQL view of its
name shows it. Another is one that is being built anew beside it.
"""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from penstock.serve.columns import Column, json_value

FORMAT = 4
_CREATE = """
CREATE TABLE IF NOT EXISTS "@views" (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    topic TEXT NOT NULL,
    identity TEXT NOT NULL,
    schema TEXT NOT NULL,
    columns TEXT NOT NULL,
    key TEXT NOT NULL,
    versions_ms INTEGER,
    history_ms INTEGER NOT NULL,
    is_current INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    offsets TEXT NOT NULL
)
"""


@dataclass(frozen=True)
class Kept:
    """A table of a view: the fold of its topic up to `offsets`, the state after `batch`, which was
    done at `at_ms`, 0 before the first.

    `identity` is the topic's own, `schema` in Spark's DDL. Versions are kept for `versions_ms`, and
    are complete from `history_ms` on.
    """

    id: int
    name: str
    generation: int
    topic: str
    identity: str
    schema: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    versions_ms: int | None
    history_ms: int
    is_current: bool
    batch: int
    at_ms: int
    offsets: dict[int, int]

    @property
    def table(self) -> str:
        """Its name, quoted."""
        return quoted(f"{self.name}@{self.id}")

    @property
    def history(self) -> str:
        return quoted(f"{self.name}@{self.id} versions")

    @property
    def names(self) -> str:
        """Its columns, quoted, one after the other."""
        return ", ".join(quoted(each.name) for each in self.columns)

    def as_json(self, row: Iterable[Any]) -> dict[str, Any]:
        """The values of a row, as SQLite has them, by their names as they stand in JSON."""
        return {
            column.name: json_value(value, column.form)
            for column, value in zip(self.columns, row, strict=True)
        }

    def column(self, name: str) -> Column | None:
        return next((each for each in self.columns if each.name == name), None)

    @classmethod
    def of(cls, row: sqlite3.Row) -> Self:
        facts = dict(row)
        facts["columns"] = tuple(Column(*each) for each in json.loads(facts["columns"]))
        facts["key"] = tuple(json.loads(facts["key"]))
        facts["is_current"] = bool(facts["is_current"])
        facts["offsets"] = {int(n): at for n, at in json.loads(facts["offsets"]).items()}
        return cls(**facts)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def versions_of(view: str) -> str:
    """The name of the SQL view on all versions of a view's rows."""
    return f"{view}_versions"


def create(connection: sqlite3.Connection) -> None:
    connection.execute(_CREATE)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def tables(connection: sqlite3.Connection, name: str | None = None) -> list[Kept]:
    """Those of a view, or of all, the current ones first."""
    rows = connection.execute(
        'SELECT * FROM "@views" WHERE ?1 IS NULL OR name = ?1 ORDER BY is_current DESC, name, id',
        (name,),
    )
    rows.row_factory = sqlite3.Row
    return [Kept.of(row) for row in rows]


def last_batch(connection: sqlite3.Connection, kept: Kept, until_ms: int) -> tuple[int, int] | None:
    """The last one that was done by a time, and when that was."""
    found: tuple[int, int] | None = connection.execute(
        'SELECT batch, at_ms FROM "@batches" WHERE view = ? AND at_ms <= ? '
        "ORDER BY at_ms DESC, batch DESC LIMIT 1",
        (kept.id, until_ms),
    ).fetchone()
    return found
