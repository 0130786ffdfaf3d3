"""Rows come in the order of their keys, numbers as numbers, at the cost of a page."""

import json
import math
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Log, Record
from penstock.errors import InvalidInput
from penstock.events.formats import format_for
from penstock.events.schema import parse_schema
from penstock.serve import ordering
from penstock.serve.catalog import FORMAT
from penstock.serve.reading import Filter, ViewReader, opened
from penstock.streams.source.keys import encode_keys
from tests.serve.scene import Scene

Values = tuple[Any, ...]


class Table:
    """A view with a key of any columns, and one column more, `n`."""

    def __init__(self, log: Log, folder: Path, key: str) -> None:
        self.scene = Scene(log, folder, partitions=1)
        self.schema = parse_schema(f"{key}, n long")
        self.key = tuple(self.schema.names[:-1])
        self._batch = -1

    def write(self, *rows: Values, deleted: bool = False) -> None:
        """A row for each key, which is deleted or gets its place among these as its `n`."""
        columns = list(zip(*rows, strict=True)) or [()] * len(self.key)
        arrays = [pa.array(each, kind.type) for each, kind in zip(columns, self.schema)]  # noqa: B905
        batch = pa.RecordBatch.from_arrays(
            [*arrays, pa.array(range(len(rows)), pa.int64())], schema=self.schema
        )
        keys = encode_keys(batch, self.key).to_pylist()
        values = format_for("json", self.schema).encode(batch).to_pylist()
        records = [
            Record(key=each, value=None if deleted else value)
            for each, value in zip(keys, values, strict=True)
        ]
        self._batch += 1
        written = self.scene._writer.append("revenue", {0: records}, batch=self._batch)
        ends = {number: each.stop for number, each in written.items() if each is not None}
        self.scene.batches.wrote(self._batch, "revenue", ends)
        self.scene.commit(self._batch)
        self.scene.project(schema=self.schema, key=self.key, versions_ms=60_000)

    def pages(self, limit: int, filters: list[Filter] | None = None, **how: Any) -> list[Values]:
        """The keys of all rows, by pages of this many."""
        found: list[Values] = []
        with opened(self.scene.path) as reader:
            kept, after = reader.find("revenue"), None
            while True:
                page = reader.page(kept, filters or [], limit=limit, after=after, **how)
                assert len(page.rows) <= limit
                found += [row[:-1] for row in page.rows]
                after = page.next
                if after is None:
                    return found

    def scanned(self) -> list[Values]:
        with opened(self.scene.path) as reader:
            return [row[:-1] for row in reader.scan(reader.find("revenue"))]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path) as log:
        yield log


NUMBERS = [-(2**63), -100, -20, -3, 0, 1, 2, 9, 10, 11, 100, 2**63 - 1]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_numbers(log: Log, tmp_path: Path, limit: int) -> None:
    table = Table(log, tmp_path, "id long")
    table.write(*[(number,) for number in reversed(NUMBERS)], (None,))
    expected = [(None,), *((number,) for number in NUMBERS)]
    assert table.pages(limit) == expected
    assert table.scanned() == expected
    assert table.pages(limit, batch=0) == expected


def test_fractions(log: Log, tmp_path: Path) -> None:
    table = Table(log, tmp_path, "x double")
    numbers = [-math.inf, -1e300, -2.5, -0.001, 0.0, 1e-9, 0.5, 2.0, 10.0, 1e16, math.inf]
    table.write(*[(number,) for number in reversed(numbers)], (math.nan,), (None,))
    for limit in (1, 3, 100):
        found = table.pages(limit)
        assert found == [(None,), *((number,) for number in numbers), ("NaN",)]
    assert table.scanned() == found


def test_decimals(log: Log, tmp_path: Path) -> None:
    table = Table(log, tmp_path, "amount decimal(20, 3)")
    texts = ["-100.000", "-20.500", "-3.000", "0.000", "0.001", "9.000", "10.000", "200.000"]
    table.write(*[(Decimal(text),) for text in reversed(texts)], (None,))
    for limit in (1, 3, 100):
        assert table.pages(limit) == [(None,), *((text,) for text in texts)]
    # Near the same number of SQLite's: in some order, and none of them twice or left out.
    close = [(Decimal(12_345_678_901_234_567_000 + n) / 1000,) for n in range(9)]
    table.write(*close)
    found = [each for (each,) in table.pages(2) if each and Decimal(each) > 1_000]
    assert sorted(map(Decimal, found)) == [each for (each,) in close]


def test_several_columns(log: Log, tmp_path: Path) -> None:
    table = Table(log, tmp_path, "country string, id long, at timestamp")
    keys = [
        (country, number, moment)
        for country in (None, "B", "NL", "NO", "a")
        for number in (None, -10, -9, 0, 9, 10)
        for moment in (None, "2026-01-01T00:00:00.000000Z", "2026-01-31T10:00:00.000000Z")
    ]
    rows = [(c, n, None if at is None else datetime.fromisoformat(at)) for c, n, at in keys]
    table.write(*reversed(rows))
    for limit in (1, 7, 1_000):
        assert table.pages(limit) == keys
        assert table.pages(limit, batch=0) == keys
    assert table.pages(2, [Filter("country", "eq", "NL")]) == [k for k in keys if k[0] == "NL"]
    assert table.pages(2, [Filter("id", "gt", "-10")]) == [
        k for k in keys if k[1] is not None and k[1] > -10
    ]


def test_rows_that_come_and_go_between_pages_shift_nothing(log: Log, tmp_path: Path) -> None:
    table = Table(log, tmp_path, "id long")
    table.write(*[(number,) for number in range(20)])
    with opened(table.scene.path) as reader:
        first = reader.page(reader.find("revenue"), limit=10)
    table.write((9,), (12,), deleted=True)
    table.write((-1,), (100,))
    with opened(table.scene.path) as reader:
        rest = reader.page(reader.find("revenue"), after=first.next).rows
    assert [row[0] for row in first.rows] == list(range(10))
    assert [row[0] for row in rest] == [10, 11, *range(13, 20), 100]


def test_differences_too(log: Log, tmp_path: Path) -> None:
    table = Table(log, tmp_path, "id long")
    table.write((1,), (2,), (10,))
    table.write((100,), (20,), (3,))
    table.write((10,), deleted=True)
    with opened(table.scene.path) as reader:
        found = list(reader.differences(reader.find("revenue"), 0, 2))
    assert [(each.after or each.before or ())[0] for each in found] == [3, 10, 20, 100]


TYPES: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-12, 12),
    "double": st.floats(allow_nan=False) | st.integers(-12, 12).map(float),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    "binary": st.binary(max_size=3),
    "boolean": st.booleans(),
}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(st.data())
def test_pages_are_the_sorted_keys(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
    rows = data.draw(
        st.lists(st.tuples(*(st.none() | TYPES[kind] for kind in kinds)), min_size=1, max_size=25)
    )
    if kinds == ["string"]:
        rows = [row for row in rows if row != ('{"c0":null}',)] or [("a",)]  # which is null's
    folder = tmp_path_factory.mktemp("data")
    with Log.open(folder) as log:
        table = Table(log, folder, ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds)))
        table.write(*rows)
        found = table.pages(data.draw(st.integers(1, 8)))
        assert table.scanned() == found

    def place(row: Values) -> list[Any]:
        values = [each.encode() if isinstance(each, str) else each for each in row]
        return [(each is not None, each) for each in values]

    ordered = [place(row) for row in found]
    assert ordered == sorted(ordered)
    assert set(found) == set(rows)


def plans(reader: ViewReader, **how: Any) -> list[str]:
    """How SQLite finds the rows of a page."""
    asked: list[str] = []
    connection = reader._connection
    connection.set_trace_callback(asked.append)
    reader.page(reader.find("revenue"), limit=2, **how)
    connection.set_trace_callback(None)
    steps = [
        row[3]
        for statement in asked
        if "ORDER BY" in statement and "@views" not in statement
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    assert steps
    return steps


@pytest.mark.parametrize("key", ["id long", "a string, b decimal(9, 2), c long"])
def test_a_page_neither_sorts_nor_reads_all_rows(log: Log, tmp_path: Path, key: str) -> None:
    table = Table(log, tmp_path, key)
    some = [(1,)] if key == "id long" else [("x", Decimal("1.50"), 2), (None, None, None)]
    table.write(*some)
    with opened(table.scene.path) as reader:
        kept = reader.find("revenue")
        width = len(ordering.terms(kept))
        empty = ordering.write_place([*[None] * (width - 1), b""])
        for after in (None, empty, ordering.write_place([*[0] * (width - 1), b"k"])):
            for batch in (None, 0):
                steps = plans(reader, after=after, batch=batch)
                assert not [step for step in steps if "TEMP B-TREE" in step]
                assert all("by key" in step for step in steps)
                if after is not None:
                    assert all(step.startswith("SEARCH") for step in steps)


@pytest.mark.parametrize(
    "text",
    [
        b"1",
        b"x",
        b"\xff",
        b"[]",
        b"[1]",
        b'[1,"k"]',
        b'[[1],{"bytes":"aw=="}]',
        b'[1,{"bytes":"a"}]',
        b'[1,{"more":1}]',
        json.dumps([2**63, {"bytes": "aw=="}]).encode(),
        b"[" * 100_000,
    ],
)
def test_what_is_no_place(log: Log, tmp_path: Path, text: bytes) -> None:
    table = Table(log, tmp_path, "id long")
    table.write((1,))
    with opened(table.scene.path) as reader, pytest.raises(InvalidInput, match="no place between"):
        reader.page(reader.find("revenue"), after=text)


def test_a_table_of_an_earlier_form_is_built_anew(log: Log, tmp_path: Path) -> None:
    table = Table(log, tmp_path, "id long")
    table.write((2,), (10,))
    with sqlite3.connect(table.scene.path) as old:
        old.execute('DROP INDEX "revenue@1 by key"')
        old.execute(f"PRAGMA user_version = {FORMAT - 1}")
    old.close()
    table.scene.project(schema=table.schema, key=table.key, versions_ms=60_000)
    with opened(table.scene.path) as reader:
        assert any("by key" in step for step in plans(reader))
    assert table.pages(1) == [(2,), (10,)]
