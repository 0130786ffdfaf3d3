import datetime as dt
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.streams.algebra import kernel_from_spec
from penstock.streams.algebra.keyed.held import HeldKernel
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, cut, weighed

SECOND = 1_000_000
EVERY = 10 * SECOND
TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])
SCHEMA = pa.schema(
    [
        ("v", pa.int64()),
        ("k", pa.string()),
        ("window", WINDOW),
        pa.field("_weight", pa.int32(), False),
    ]
)


def kernel(**options: object) -> HeldKernel:
    made = HeldKernel(["k", "window"], SCHEMA, EVERY, **options)  # type: ignore[arg-type]
    found = kernel_from_spec(made.spec())
    assert isinstance(found, HeldKernel)
    return found


def change(key: str, value: int, weight: int, end: int = 1_000) -> Row:
    moment = dt.datetime.fromtimestamp(end, dt.UTC)
    window = {"start": dt.datetime.fromtimestamp(0, dt.UTC), "end": moment}
    return {"k": key, "v": value, "window": window, "_weight": weight}


def rounds(seconds: int) -> int:
    return seconds // 10


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2))), st.integers(0, 9)),
        max_size=8,
    ),
    st.data(),
)
@settings(deadline=None, max_examples=40)
def test_what_is_told_is_what_was_there_at_the_last_round_time(
    batches: list[tuple[list[tuple[str, int]], int]], data: st.DataObject
) -> None:
    """A value of 0 stands for a row that goes."""
    there: dict[str, int] = {}
    told: dict[str, int] = {}
    clock = 0
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel(), buckets=2)
        query.batch([], clock=0)
        for changes, later in batches:
            rows = []
            for key, value in changes:
                if key in there:
                    rows.append(change(key, there.pop(key), -1))
                if value:
                    there[key] = value
                    rows.append(change(key, value, 1))
            before, clock = clock, clock + later
            mishap = data.draw(st.sampled_from(MISHAPS))
            query.batch(cut(batch_of(SCHEMA, rows), [3]), mishap, clock * SECOND)
            if rounds(clock) > rounds(before):
                told = dict(there)
            expected = [change(key, value, 1) for key, value in told.items()]
            found = weighed(query.changes, ["k"])
            assert sorted(found) == weighed(
                [{n: row[n] for n in ("k", "window", "v", "_weight")} for row in _zoned(expected)],
                ["k"],
            )


def _zoned(rows: list[Row]) -> list[Row]:
    found: list[Row] = batch_of(SCHEMA, rows).to_pylist()
    return found


def test_rows_that_have_ended_are_let_go(tmp_path: Path) -> None:
    query = Query(tmp_path, kernel(correct_for=5 * SECOND))
    query.batch([batch_of(SCHEMA, [change("a", 1, 1, end=12), change("b", 1, 1, end=40)])], clock=0)
    query.batch([], clock=16 * SECOND)
    assert len(query.changes) == 2
    assert query.state_rows() == 2
    query.batch([], clock=17 * SECOND + 1)
    assert query.state_rows() == 1
    query.batch([], clock=45 * SECOND + 1)
    assert query.state_rows() == 0
    assert len(query.changes) == 2


def test_only_tables_can_be_held_back() -> None:
    with pytest.raises(InvalidInput, match="table"):
        HeldKernel("k", pa.schema([("k", pa.string())]), EVERY)
