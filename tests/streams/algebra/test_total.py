"""The aggregate of all rows: one row, whatever there is."""

from pathlib import Path

import pyarrow as pa

from penstock.streams.algebra.aggregates.functions import count, min, sum  # noqa: A004
from penstock.streams.algebra.keyed.total import TotalKernel
from tests.streams.algebra.batches import Query

SCHEMA = pa.schema({"all": pa.int32(), "x": pa.int64(), "_weight": pa.int32()})
NOTHING = {"all": 1, "x": None, "_weight": 0}


def rows(*changes: tuple[int, int]) -> list[pa.RecordBatch]:
    """Changes, as (value, weight), after the row that is there before any other."""
    some = [{"all": 1, "x": value, "_weight": weight} for value, weight in changes]
    return [pa.RecordBatch.from_pylist([NOTHING, *some], schema=SCHEMA)]


def test_the_row_is_there_before_others_and_when_they_are_gone(tmp_path: Path) -> None:
    asked = {"n": count(), "total": sum("x"), "low": min("x")}
    query = Query(tmp_path, TotalKernel("all", asked, SCHEMA), buckets=2)
    empty = {"all": 1, "n": 0, "total": None, "low": None}

    assert query.batch(rows()) == [{**empty, "_weight": 1}]
    assert query.batch(rows()) == []
    full = {"all": 1, "n": 2, "total": 8, "low": 3}
    assert query.batch(rows((3, 1), (5, 1))) == [{**empty, "_weight": -1}, {**full, "_weight": 1}]
    assert query.batch(rows((3, -1), (5, -1))) == [
        {**full, "_weight": -1},
        {**empty, "_weight": 1},
    ]
