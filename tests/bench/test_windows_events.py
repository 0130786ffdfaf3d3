import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.bench.spark_topics import PARTITIONS
from penstock.bench.windows.events import CLOSING, TOPIC, Events
from penstock.log import Log

EVENTS = Events(slices=3, slice_rows=5_000, keys=20, shops=4, apart=2)


def all_rows() -> pa.Table:
    return pa.concat_tables(EVENTS.parts())


def ordered(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.to_pylist(), key=lambda row: tuple(row.values()))


def test_slices_follow_each_other_with_three_seconds_of_disorder() -> None:
    events = all_rows().filter(pa.compute.not_equal(all_rows()["key"], CLOSING))
    at = events["at"].cast(pa.int64()).to_numpy()

    assert len(at) == EVENTS.rows
    behind = np.maximum.accumulate(at) - at
    assert 2_500 < behind.max() < 3_000
    assert at.max() - at.min() == pytest.approx(EVENTS.rows * EVENTS.apart, abs=3_000)


def test_the_last_rows_end_every_window_one_after_the_other() -> None:
    *events, first, second = EVENTS.parts()
    hour = 3_600_000

    last = max(part["at"].cast(pa.int64()).to_numpy().max() for part in events)
    for rows, after in ((first, hour), (second, 2 * hour)):
        assert set(rows["key"].to_pylist()) == set(rows["shop"].to_pylist()) == {CLOSING}
        assert len(rows) == PARTITIONS
        assert rows["at"].cast(pa.int64()).to_numpy().min() >= last + after


def test_all_contenders_read_the_same_rows(tmp_path: Path) -> None:
    EVENTS.write_slices(tmp_path / "slices")
    EVENTS.write_whole(tmp_path / "whole")
    with Log.open(tmp_path / "log") as log:
        EVENTS.fill(log, log.serve())  # type: ignore[attr-defined]
        in_topic = [
            json.loads(record.value or b"")
            for partition in range(PARTITIONS)
            for record in log.read(TOPIC, partition, 0)
        ]

    rows = ordered(all_rows())
    assert ordered(pq.read_table(tmp_path / "slices")) == rows
    assert ordered(pq.read_table(tmp_path / "whole")) == rows
    times = pl.Series([row["at"] for row in in_topic]).str.to_datetime(time_zone="UTC")
    found = pa.Table.from_pylist(in_topic).set_column(3, "at", times.to_arrow())
    assert ordered(found) == rows


def test_files_are_in_the_order_of_their_slices(tmp_path: Path) -> None:
    EVENTS.write_slices(tmp_path / "slices")

    by_name = sorted((tmp_path / "slices").iterdir())
    moments = [path.stat().st_mtime for path in by_name]
    assert len(by_name) == 2 * (EVENTS.slices + 2)
    assert moments == sorted(moments)
    assert moments[1] < moments[2]
