"""Writing changed rows to a view's table."""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.serve.catalog import Kept, quoted
from penstock.serve.columns import Column, sql_values
from penstock.streams.source.keys import encode_keys


def keys_of(rows: pa.RecordBatch, kept: Kept) -> pa.Array:
    """Those of the records; one that somebody has put there by hand may have none."""
    keys = rows["_key"]
    return pc.coalesce(keys, encode_keys(rows, kept.key)) if keys.null_count else keys


def upsert(
    connection: sqlite3.Connection, kept: Kept, keys: pa.Array, rows: pa.RecordBatch
) -> None:
    """Of one key's rows the last counts."""
    found: list[bytes] = keys.to_pylist()
    last = dict(zip(found, range(len(found)), strict=True))
    deleted = rows["_deleted"]
    if deleted.true_count:
        is_gone: list[bool] = deleted.to_pylist()
        gone = [(key,) for key, place in last.items() if is_gone[place]]
        connection.executemany(f"DELETE FROM {kept.table} WHERE _key = ?", gone)
        last = {key: place for key, place in last.items() if not is_gone[place]}
    if not last:
        return
    if len(last) < len(found):
        rows = rows.take(pa.array(last.values(), pa.int64()))
    values = [sql_values(rows[each.name], each.form) for each in kept.columns]
    statement = _statement(kept.table, kept.columns, kept.key)
    connection.executemany(statement, zip(last, *values, strict=True))


@lru_cache(maxsize=1024)
def _statement(table: str, columns: Sequence[Column], key: Sequence[str]) -> str:
    # The columns of the key stay what they are, and so does their index.
    others = [quoted(each.name) for each in columns if each.name not in key]
    change = ", ".join(f"{name} = excluded.{name}" for name in others)
    return (
        f"INSERT INTO {table} VALUES (?{', ?' * len(columns)}) "
        f"ON CONFLICT (_key) DO {f'UPDATE SET {change}' if change else 'NOTHING'}"
    )
