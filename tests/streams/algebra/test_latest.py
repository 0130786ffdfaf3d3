import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError
from penstock.streams.algebra import kernel_from_spec
from penstock.streams.algebra.analytics.latest import LatestKernel
from penstock.streams.algebra.kernel import Kernel
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, cut, text
from tests.streams.algebra.oracle import as_key, spark_order, unsigned_zeros

SCHEMA = pa.schema(
    [
        ("place", pa.string()),
        ("sensor", pa.float64()),
        ("value", pa.float64()),
        ("at", pa.timestamp("ms")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_key", pa.binary()),
    ]
)
PLACES = ("_partition", "_offset")


def made(schema: pa.Schema = SCHEMA, key: Any = "sensor", time: str = "at") -> Kernel:
    kernel = LatestKernel(key, schema, time)
    again = kernel_from_spec(kernel.spec())
    assert again.spec() == kernel.spec()
    return again


def moment(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(second, dt.UTC).replace(tzinfo=None)


def expected(rows: Sequence[Row], places: Sequence[str]) -> list[str]:
    last: dict[Any, Row] = {}
    names = ("at", *places, "place", "value")
    for row in sorted(rows, key=lambda row: spark_order([row[name] for name in names])):
        last[as_key(row["sensor"])] = row
    table = []
    for row in last.values():
        shown = {name: row[name] for name in SCHEMA.names[:4]}
        shown["sensor"] = unsigned_zeros(row["sensor"])
        table.append(text({**shown, "_time": row["at"].replace(tzinfo=ZoneInfo("UTC"))}))
    return sorted(table)


_rows = st.lists(
    st.fixed_dictionaries(
        {
            "place": st.none() | st.sampled_from(["", "x"]),
            "sensor": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
            "value": st.none() | st.sampled_from([1.0, 2.0, float("nan")]),
            "at": st.integers(0, 5).map(moment),
            "_partition": st.integers(0, 1),
            "_offset": st.none() | st.integers(0, 2),
        }
    ),
    max_size=25,
)


@given(
    _rows,
    st.lists(st.integers(0, 25), max_size=4),
    st.lists(st.integers(0, 25), max_size=3),
    st.integers(1, 3),
    st.sampled_from([(), ("_offset",), PLACES]),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_after_every_batch_the_last_whole_row_of_each_key(
    rows: list[Row],
    batches: list[int],
    cuts: list[int],
    buckets: int,
    places: tuple[str, ...],
    data: st.DataObject,
) -> None:
    schema = pa.schema([each for each in SCHEMA if each.name not in set(PLACES) - set(places)])
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), made(schema), buckets=buckets, piece=2)
        come: list[Row] = []
        for each in cut(batch_of(schema, rows), batches):
            query.batch(cut(each, cuts), data.draw(st.sampled_from(MISHAPS)))
            come += each.to_pylist()
            assert query.table() == expected(come, places)
        assert query.state_rows() == len(expected(rows, places))


def reading(second: int, value: float | None, offset: int = 0) -> pa.RecordBatch:
    row = {"sensor": 1.5, "value": value, "at": moment(second), "_offset": offset}
    return batch_of(SCHEMA, [row])


def told(changes: Sequence[Row]) -> list[tuple[Any, int]]:
    return [(row["value"], row["_weight"]) for row in changes]


def test_a_null_that_is_later_is_the_latest(tmp_path: Path) -> None:
    query = Query(tmp_path, made())
    assert told(query.batch([reading(5, 1.0)])) == [(1.0, 1)]
    assert told(query.batch([reading(6, None), reading(4, 2.0)])) == [(1.0, -1), (None, 1)]
    assert told(query.batch([reading(5, 3.0)])) == []


def test_the_same_row_further_on_in_the_log_changes_only_what_is_held(tmp_path: Path) -> None:
    query = Query(tmp_path, made())
    query.batch([reading(5, 1.0)])
    assert query.batch([reading(5, 1.0, offset=7)]) == []
    assert query.batch([reading(5, 2.0, offset=6)]) == []
    assert told(query.batch([reading(5, 0.0, offset=8)])) == [(1.0, -1), (0.0, 1)]


def test_a_row_that_is_not_the_last_is_not_written(tmp_path: Path) -> None:
    kernel = made()
    query = Query(tmp_path, kernel)
    query.batch([reading(5, 1.0)])
    with query._open(0) as state:
        assert list(kernel.step(state, [kernel.partial(reading(4, 2.0))], None)) == []
        assert list(state._changes()) == []


def test_one_row_of_a_key_is_shipped() -> None:
    rows = pa.Table.from_batches([reading(second, 1.0) for second in (3, 5, 4)])
    (packed,) = made().partial(rows.combine_chunks().to_batches()[0]).to_pylist()
    assert packed["at"] == moment(5)


def test_a_key_alone_and_where_rows_stand(tmp_path: Path) -> None:
    schema = pa.schema([("_time", pa.timestamp("us", "UTC")), ("user", pa.int64())])
    kernel = made(schema, "user", "_time")
    assert kernel.output.names == ["user", "_time", "_weight"]
    assert not kernel.is_final
    query = Query(tmp_path, kernel)
    query.batch([batch_of(schema, [{"user": 1, "_time": at} for at in (2, 3, 1)])])
    assert [row["_time"].microsecond for row in query.changes] == [3]


def test_rows_without_time_are_refused() -> None:
    with pytest.raises(KernelError, match="1 rows have no event time"):
        made().partial(batch_of(SCHEMA, [{"sensor": 1.5}]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": ()}, "key"),
        ({"time": "value"}, "double"),
        ({"schema": SCHEMA.append(pa.field("_weight", pa.int32()))}, "table"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        LatestKernel(**{"key": "sensor", "schema": SCHEMA, "time": "at", **change})
    assert refused.value.hint
