import json
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.bench.spark_topics import PARTITIONS, Rows, fill_log
from penstock.events.formats import format_for
from penstock.events.schema import parse_schema
from penstock.log import Log


def rows_of(rows: Rows) -> pa.Table:
    form = format_for("json", parse_schema(rows.schema))
    return pa.Table.from_batches([form.decode(block).rows for block in rows.blocks()])


@pytest.mark.parametrize(
    ("kind", "columns", "size"), [("orders", 6, 120), ("wide", 7, 150), ("numbers", 2, 26)]
)
def test_rows_have_the_columns_and_the_size_that_the_report_says(
    kind: str, columns: int, size: int
) -> None:
    rows = Rows(kind, 20_000, 10_000)
    (values,) = rows.blocks()

    assert rows_of(rows).num_columns == columns
    assert sum(map(len, values.to_pylist())) / len(values) == pytest.approx(size, rel=0.1)


def test_every_key_comes_once_and_then_at_random() -> None:
    keys = rows_of(Rows("numbers", 30_000, 10_000))["key"].to_pylist()

    assert sorted(keys[:10_000]) == list(range(10_000))
    assert set(keys[10_000:]) < set(range(10_000))


def test_all_rows_are_in_the_log(tmp_path: Path) -> None:
    rows = Rows("numbers", 1_000, 10)
    with Log.open(tmp_path) as log:
        fill_log(log, log.serve(), rows)  # type: ignore[attr-defined]
        found = [
            json.loads(record.value or b"")
            for partition in range(PARTITIONS)
            for record in log.read(rows.topic, partition, 0)
        ]

    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, rows_of(rows).to_pylist()))
