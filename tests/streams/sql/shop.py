"""Tables of a small shop and its gossip, with nulls and rows that are there twice."""

from typing import Any

import duckdb
from hypothesis import strategies as st

from penstock.streams.sql import Table

Row = tuple[Any, ...]

# Types that Spark and DuckDB both know by these names.
SCHEMAS = {
    "customers": "id int, name string, country string",
    "orders": "id int, customer int, amount int, price decimal(10,2), at timestamp",
    "items": "order_id int, product string, quantity int",
    "blocked": "customer int",
    "tweets": "id int, sender_id int, text string, timestamp timestamp",
    "follows": "follower_id int, followee_id int",
}
KEYS = {"customers": ("id",), "orders": ("id",), "tweets": ("id",)}

ROWS: dict[str, list[Row]] = {
    "customers": [
        (1, "Ann", "DE"), (2, "Bob", "FR"), (3, "Cay", "DE"), (4, "Dan", None), (5, None, "FR"),
    ],
    "orders": [
        (10, 1, 5, "19.99", "2026-01-31 10:00:00"),
        (11, 1, 7, "5.00", "2026-01-31 10:04:00"),
        (12, 2, 7, "12.50", "2026-01-31 10:11:00"),
        (13, 3, None, "0.99", "2026-01-31 10:12:30"),
        (14, None, 2, "8.00", "2026-01-31 10:21:00"),
        (15, 9, 1, None, None),
        (16, 2, 3, "12.50", "2026-01-31 10:29:59"),
    ],
    "items": [
        (10, "tea", 2), (10, "cup", 1), (11, "tea", 1), (12, "pot", None), (12, "tea", 4),
        (14, "cup", 6), (99, "pot", 1), (None, "cup", 2), (10, "tea", 2),
    ],
    "blocked": [(3,), (9,)],
    "tweets": [
        (1, 1, "hello", "2026-01-31 10:00:00"), (2, 2, "salut", "2026-01-31 10:01:00"),
        (3, 1, "again", "2026-01-31 10:02:00"), (4, 3, "moin", "2026-01-31 10:03:00"),
    ],
    "follows": [(2, 1), (3, 1), (3, 2), (4, 9), (1, 3), (2, 3)],
}  # fmt: skip


def columns_of(table: str) -> dict[str, str]:
    """Their types by their names."""
    parts = SCHEMAS[table].replace("(10,2)", "(10;2)").split(", ")
    return dict(part.replace(";", ",").split(" ", 1) for part in parts)


TABLES = {name: Table(tuple(columns_of(name)), KEYS.get(name, ())) for name in SCHEMAS}


def database(rows: dict[str, list[Row]]) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    for name in SCHEMAS:
        kinds = [f'"{column}" {kind}' for column, kind in columns_of(name).items()]
        db.execute(f"CREATE TABLE {name} ({', '.join(kinds)})")
        if rows.get(name):
            marks = ", ".join("?" * len(kinds))
            db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])
    return db


def any_rows() -> st.SearchStrategy[dict[str, list[Row]]]:
    """Tables of a few rows, those with a key without two of the same."""
    number, word = st.none() | st.integers(1, 4), st.none() | st.sampled_from(["DE", "FR", "tea"])
    time = st.integers(0, 59).map(lambda minute: f"2026-01-31 10:{minute:02}:00")
    price = st.none() | st.integers(0, 300).map(lambda cents: f"{cents / 100:.2f}")
    values = {
        "id": st.integers(1, 9),
        "name": word,
        "country": word,
        "product": word,
        "text": word,
        "price": price,
        "at": st.none() | time,
        "timestamp": time,
    }
    tables = {}
    for table in SCHEMAS:
        row = st.tuples(*(values.get(column, number) for column in columns_of(table)))
        unique = (lambda row: row[0]) if table in KEYS else None
        tables[table] = st.lists(row, max_size=6, unique_by=unique)
    tables["tweets"] = tables["tweets"].map(_at_different_times)
    return st.fixed_dictionaries(tables)


def _at_different_times(tweets: list[Row]) -> list[Row]:
    """An order in which none are equal, as otherwise any of them may come first."""
    return [(*row[:3], f"2026-01-31 11:{row[0]:02}:00") for row in tweets]
