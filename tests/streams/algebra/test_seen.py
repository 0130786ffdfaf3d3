import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError, UnknownName
from penstock.events.compiled import frozen
from penstock.streams.algebra.analytics.bloom import BloomKernel, filter_size
from penstock.streams.algebra.analytics.bloom_loops import add_in_order
from penstock.streams.algebra.analytics.in_order import InOrderKernel
from penstock.streams.algebra.analytics.seen import SeenKernel
from penstock.streams.algebra.kernel import END
from penstock.streams.state import fixed_width
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, cut, text
from tests.streams.algebra.oracle import as_key, spark_order

SECOND = 1_000_000
NOT_YET, AT_THE_END = -(10**6), 10**6  # clocks, in seconds
SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("user", pa.float64()),
        ("tags", pa.list_(pa.int8())),
        ("at", pa.timestamp("ms")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
    ]
)
PLACES = ("_partition", "_offset")
FEW: Any = {"error": 1e-6, "expected": 1000}  # of so few keys none is taken for another


def moment(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def micros(clock: int) -> int | None:
    return {NOT_YET: None, AT_THE_END: END}.get(clock, clock * SECOND)


def again(kernel: Any) -> Any:
    return type(kernel).from_spec(json.loads(json.dumps(kernel.spec())))


_rows = st.lists(
    st.fixed_dictionaries(
        {
            "page": st.none() | st.sampled_from(["", "x", "y"]),
            "user": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
            "tags": st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2),
            "at": st.integers(0, 5).map(lambda seconds: moment(seconds).replace(tzinfo=None)),
            "_partition": st.integers(0, 1),
        }
    ),
    max_size=25,
)


def given_out(changes: Sequence[Row]) -> list[str]:
    """The rows that all changes together leave; one is taken back only if it is there."""
    there: Counter[str] = Counter()
    for change in changes:
        row = dict(change)
        weight = row.pop("_weight")
        there[_text(row)] += weight
        assert there[_text(row)] >= 0
    return sorted(there.elements())


def _text(row: Row) -> str:
    return text({name: str(each) if name == "_time" else each for name, each in row.items()})


def answered(rows: Sequence[Row], places: Sequence[str], *, timed: bool) -> list[str]:
    """What is to be given out of all these rows, from the definition."""
    order = [*(["at"] if timed else []), *places]

    def place(row: Row) -> Any:
        return spark_order([row[name] for name in (*order, "page", "tags", "at")])

    seen: set[Any] = set()
    table = []
    for row in sorted(rows, key=place):
        key = as_key(row["user"])
        made = {name: row[name] for name in ("page", "user", "tags", "at")}
        time = {"_time": row["at"].replace(tzinfo=dt.UTC)} if timed else {}
        table.append(_text({**made, "seen_before": key in seen, **time}))
        seen.add(key)
    return sorted(table)


@given(
    _rows,
    st.lists(st.integers(0, 25), max_size=4),
    st.lists(st.integers(0, 25), max_size=3),
    st.integers(1, 3),
    st.sampled_from([(), ("_offset",), ("_partition", "_offset")]),
    st.booleans(),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_exactly_the_first_row_of_each_key_was_not_seen_before(
    rows: list[Row],
    batches: list[int],
    cuts: list[int],
    buckets: int,
    places: tuple[str, ...],
    timed: bool,
    data: st.DataObject,
) -> None:
    for i, row in enumerate(rows):
        row["_offset"] = i // 2  # twice the same now and then
    schema = pa.schema([each for each in SCHEMA if each.name not in set(PLACES) - set(places)])
    kernel = again(SeenKernel("user", schema, time="at" if timed else None))
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=buckets, piece=2)
        every = batch_of(schema, data.draw(st.permutations(rows)))
        come: list[Row] = []
        for each in cut(every, batches):
            mishap = data.draw(st.sampled_from(MISHAPS))
            query.batch(cut(each, cuts), mishap)
            come += each.to_pylist()
            assert given_out(query.changes) == answered(come, places, timed=timed)
        assert query.state_rows() == len({as_key(row["user"]) for row in rows})


def clicks(*ats: int, user: float = 1.5) -> pa.RecordBatch:
    return batch_of(SCHEMA, [{"page": f"p{at}", "user": user, "at": moment(at)} for at in ats])


def told(changes: Sequence[Row]) -> list[tuple[str, bool, int]]:
    return [(row["page"], row["seen_before"], row["_weight"]) for row in changes]


def test_a_first_row_that_was_not_is_corrected(tmp_path: Path) -> None:
    query = Query(tmp_path, again(SeenKernel("user", SCHEMA, "at")))
    assert told(query.batch([clicks(5, 7)])) == [("p5", False, 1), ("p7", True, 1)]
    assert told(query.batch([clicks(6)])) == [("p6", True, 1)]
    assert told(query.batch([clicks(4, 3)])) == [
        ("p5", False, -1),
        ("p5", True, 1),
        ("p4", True, 1),
        ("p3", False, 1),
    ]


def test_what_is_taken_back_is_what_was_given(tmp_path: Path) -> None:
    query = Query(tmp_path, again(SeenKernel("user", SCHEMA, "at")))
    (given,) = query.batch([clicks(5, user=-0.0)])
    taken_back, *_ = query.batch([clicks(4, user=0.0)])
    assert repr(given | {"_weight": -1}) == repr(taken_back)


def test_a_key_alone_is_enough(tmp_path: Path) -> None:
    schema = pa.schema([("user", pa.int64())])
    query = Query(tmp_path, again(SeenKernel("user", schema)))
    query.batch([batch_of(schema, [{"user": 1}, {"user": 1}])])
    query.batch([batch_of(schema, [{"user": 1}, {"user": 2}])])
    assert [row["seen_before"] for row in query.changes] == [False, True, True, False]


@pytest.mark.parametrize(
    "kernel", [SeenKernel("user", SCHEMA, "at"), BloomKernel("user", SCHEMA, "at", **FEW)]
)
def test_what_was_seen_before_is_not_written_again(
    kernel: SeenKernel | BloomKernel, tmp_path: Path
) -> None:
    query = Query(tmp_path, kernel)
    query.batch([clicks(1)])
    with query._open(0) as state:
        (given,) = kernel.step(state, [kernel.partial(clicks(2))], None)
        assert given["seen_before"].to_pylist() == [True]
        assert list(state._changes()) == []


# Rows in the order of time.


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[list[Row], int]]:
    """Batches of rows with the clock of each; some come behind it."""
    clock = NOT_YET
    steps: list[tuple[list[Row], int]] = []
    for _ in range(draw(st.integers(1, 6))):
        least = max(0, clock - 4)
        rows: list[Row] = []
        for _ in range(draw(st.integers(0, 5))):
            at = moment(draw(st.integers(least, least + 20))).replace(tzinfo=None)
            row = {"user": draw(st.sampled_from([None, 0.0, 1.5])), "at": at}
            place = {"_partition": draw(st.integers(0, 1)), "_offset": draw(st.integers(0, 1))}
            rows.append({"page": str(len(steps)), "tags": [], **row, **place})
        steps.append((rows, clock))
        clock = max(clock, draw(st.integers(0, 30)))
    return [*steps, ([], AT_THE_END)]


@given(_steps(), st.lists(st.integers(0, 5), max_size=2), st.booleans(), st.data())
@settings(deadline=None, max_examples=40)
def test_a_row_is_given_when_the_clock_is_past_it(
    steps: list[tuple[list[Row], int]], cuts: list[int], placed: bool, data: st.DataObject
) -> None:
    schema = SCHEMA if placed else pa.schema([each for each in SCHEMA if each.name not in PLACES])
    kernel = again(InOrderKernel("user", schema, "at"))
    names = ["page", "user", "tags", "at"]
    with TemporaryDirectory() as folder:
        query = Query(Path(folder), kernel, buckets=data.draw(st.integers(1, 2)), piece=2)
        come: list[Row] = []
        for rows, clock in steps:
            mishap = data.draw(st.sampled_from(MISHAPS))
            query.batch(cut(batch_of(schema, rows), cuts), mishap, micros(clock))
            come += rows
            expected = [
                {
                    **{name: row[name] for name in names},
                    "_time": row["at"].replace(tzinfo=dt.UTC),
                    **({name: row[name] for name in PLACES} if placed else {}),
                    "_weight": 1,
                }
                for row in come
                if row["at"].replace(tzinfo=dt.UTC).timestamp() < clock
            ]
            assert sorted(map(_text, query.changes)) == sorted(map(_text, expected))
            assert query.state_rows() == len(come) - len(expected)


def test_a_key_that_is_bookkeeping_is_held_with_its_row(tmp_path: Path) -> None:
    for key in ("_timestamp", "_offset"):
        query = Query(tmp_path / key, again(InOrderKernel(key, SCHEMA, "at")))
        rows = [{"at": moment(1), "_offset": 7, "_timestamp": moment(2)}] * 2
        query.batch([batch_of(SCHEMA, rows)])
        (row, _) = query.batch([], clock=2 * SECOND)
        assert (row["_offset"], str(row[key])) == (7, str(rows[0][key]))


# The Bloom filter.


def chain(folder: Path, schema: pa.Schema, *, buckets: int = 1) -> tuple[Query, Query]:
    held = Query(folder / "held", again(InOrderKernel("user", schema, "at")), buckets=buckets)
    bloom = BloomKernel("user", held.kernel.output, "_time", **FEW)
    return held, Query(folder / "bloom", again(bloom), buckets=buckets)


@given(_steps(), st.lists(st.integers(0, 5), max_size=2), st.data())
@settings(deadline=None, max_examples=25)
def test_of_rows_in_order_only_the_first_of_a_key_is_new(
    steps: list[tuple[list[Row], int]], cuts: list[int], data: st.DataObject
) -> None:
    """Behind the clock, none is that has the key of one that was told."""
    with TemporaryDirectory() as folder:
        held, bloom = chain(Path(folder), SCHEMA, buckets=data.draw(st.integers(1, 2)))
        seen: set[Any] = set()
        for rows, clock in steps:
            given = held.batch([batch_of(SCHEMA, rows)], clock=micros(clock))
            shuffled = batch_of(held.kernel.output, data.draw(st.permutations(given)))
            mishap = data.draw(st.sampled_from(MISHAPS))
            told = bloom.batch(cut(shuffled, cuts), mishap, micros(clock))
            assert len(told) == len(given)
            first: dict[Any, Row] = {}
            for row in sorted(
                given, key=lambda row: (row["at"], row["_partition"], row["_offset"])
            ):
                first.setdefault(as_key(row["user"]), row)
            new = {key: row for key, row in first.items() if key not in seen}
            fresh = [row for row in told if not row["seen_before"]]
            assert sorted((str(row["user"]), row["at"]) for row in fresh) == sorted(
                (str(row["user"]), row["at"]) for row in new.values()
            )
            seen |= set(first)


@pytest.mark.parametrize("error", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_the_error_is_as_stated(error: float, kind: pa.DataType, tmp_path: Path) -> None:
    """Hashes are the same every time."""
    expected, more = 100_000, 1_000_000
    schema = pa.schema([("user", kind)])
    query = Query(
        tmp_path, again(BloomKernel("user", schema, error=error, expected=expected)), buckets=2
    )
    numbers = pa.array(np.arange(expected + more) * 7 + 3)
    rows = pa.record_batch([numbers.cast(kind)], schema=schema)
    known, new = rows.slice(0, expected), rows.slice(expected)
    assert _answers(query.batch([known])).mean() < error / 3  # while it fills
    assert _answers(query.batch([known])).all()
    assert 0.9 * error < error_of(query) <= error
    assert 0.8 * error < mistaken(query, new) <= error
    assert query.state_rows() * 512 / expected <= {0.1: 5, 0.01: 10.1, 0.001: 15.8}[error]


def _answers(changes: Sequence[Row]) -> Any:
    return np.array([row["seen_before"] for row in changes])


def bloom_of(query: Query) -> tuple[BloomKernel, list[pa.RecordBatch]]:
    """The kernel and all of its state."""
    assert isinstance(query.kernel, BloomKernel)
    batches = []
    for bucket in range(2):
        with query._open(bucket) as state:
            batches += list(state.all_rows())
    return query.kernel, batches


def error_of(query: Query) -> float:
    kernel, batches = bloom_of(query)
    return kernel.error_of(batches)


def mistaken(query: Query, rows: pa.RecordBatch) -> float:
    """The share of these that would be taken for seen, each if it came next."""
    kernel, batches = bloom_of(query)
    filters = np.zeros((kernel.size.blocks, 64), np.uint8)
    for batch in batches:
        filters[batch.column(0).to_numpy()] = fixed_width.numbers(batch.column(1))
    packed = kernel.partial(rows)
    each = np.arange(rows.num_rows)
    asked = filters[packed.column(0).to_numpy()].view(np.uint64).reshape(-1)
    hashes = frozen(packed.column(1).to_numpy())
    seen = np.empty(rows.num_rows, np.bool_)
    add_in_order(frozen(each), hashes, frozen(each), kernel.size.bits, asked, seen)
    return float(seen.mean())


def test_a_filter_that_is_too_full_can_be_told(tmp_path: Path) -> None:
    schema = pa.schema([("user", pa.int64())])
    kernel = BloomKernel("user", schema, error=0.01, expected=1_000)
    query = Query(tmp_path, kernel, buckets=2)
    assert error_of(query) == 0
    query.batch([pa.record_batch([pa.array(np.arange(1_000))], schema=schema)])
    assert 0.005 < error_of(query) < 0.015  # few blocks, so that chance has its say
    query.batch([pa.record_batch([pa.array(np.arange(3_000))], schema=schema)])
    assert error_of(query) > 0.1


@pytest.mark.parametrize("error", [0.5, 0.1, 0.01, 0.001, 1e-4, 1e-6])
def test_the_size_of_a_filter(error: float) -> None:
    """Somewhat more bits than a filter in one piece would need, which is optimal."""
    blocks, bits = filter_size(error, 10**7)
    optimal = -np.log2(error) / np.log(2)
    assert 1.03 < blocks * 512 / 10**7 / optimal < 1.4
    assert 0.7 < bits / -np.log2(error) <= 1.2


def test_what_is_asked_must_make_sense() -> None:
    weighted = SCHEMA.append(pa.field("_weight", pa.int32()))
    for make in (SeenKernel, InOrderKernel):
        with pytest.raises(InvalidInput, match="table") as refused:
            make("user", weighted, "at")
        assert "stream" in refused.value.hint
    taken_back = batch_of(weighted, [{"user": 1.0, "at": moment(1), "_weight": -1}])
    with pytest.raises(KernelError, match="taken back"):
        BloomKernel("user", weighted, "at", **FEW).partial(taken_back)
    with pytest.raises(UnknownName):
        SeenKernel("nobody", SCHEMA)
    with pytest.raises(InvalidInput, match="key"):
        SeenKernel((), SCHEMA)
    with pytest.raises(InvalidInput, match="seen_before"):
        SeenKernel("user", SCHEMA.append(pa.field("seen_before", pa.bool_())))
    for kernel in (
        SeenKernel("user", SCHEMA, "at"),
        InOrderKernel("user", SCHEMA, "at"),
        BloomKernel("user", SCHEMA, "at", **FEW),
    ):
        with pytest.raises(KernelError, match="no event time"):
            kernel.partial(batch_of(SCHEMA, [{"user": 1.0}]))
    for error, expected in ((0, 1), (0.6, 1), (0.01, 0)):
        with pytest.raises(InvalidInput):
            BloomKernel("user", SCHEMA, error=error, expected=expected)
