import datetime as dt
import math
import statistics
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, KernelError
from penstock.streams import algebra
from penstock.streams.algebra import hopping, session, sliding, tumbling
from penstock.streams.algebra.analytics import series
from penstock.streams.algebra.analytics.measures import Anomaly, Comparison, Measure
from penstock.streams.algebra.analytics.series import SeriesKernel, windows_back
from penstock.streams.algebra.kernel import END
from penstock.streams.algebra.windows.hopping import HoppingKernel
from penstock.streams.algebra.windows.window import Hopping
from tests.streams.algebra.batches import MISHAPS, Query, Row, batch_of, cut, text, weighed

SECOND = 1_000_000
DAY = 86_400
BERLIN = ZoneInfo("Europe/Berlin")
SPRING = dt.datetime(2026, 3, 29, tzinfo=BERLIN)  # a day of 23 hours
NOT_YET, AT_THE_END = -(10**10), 10**10  # clocks, in seconds
CLICKS = pa.schema(
    [
        ("k", pa.string()),
        ("g", pa.int32()),
        ("v", pa.decimal128(38, 2)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
ASKED = {
    "n": algebra.count(),
    "total": algebra.sum("v"),
    "average": algebra.mean("v"),
    "lowest": algebra.min("g"),
    "all": algebra.collect("k"),
}
MEASURED = ["n", "total", "average", "lowest"]
STEP = {"tumbling": 4, "overlapping": 2, "apart": 5, "days": DAY}
WINDOWS = {
    "tumbling": tumbling("4s"),
    "overlapping": hopping("6s", "2s"),
    "apart": hopping("2s", "5s"),
    "days": tumbling("1 day", zone="Europe/Berlin"),
}
MEASURES: dict[str, Measure] = {
    "before": Comparison(),
    "three before": Comparison(3),
    "anomaly": Anomaly(7, 2.0),
}


def made(
    source: HoppingKernel, measure: Measure, by: Sequence[str] = ("k",), correct_for: int = 0
) -> SeriesKernel:
    kernel = SeriesKernel(
        by, source.window, source.output, measure, correct_for=correct_for * SECOND
    )
    again = SeriesKernel.from_spec(kernel.spec())
    assert again.spec() == kernel.spec()
    return again


def windowed(
    window: Hopping, by: Sequence[str] = ("k",), correct_for: int = 0, emit: str = "final"
) -> HoppingKernel:
    return HoppingKernel(
        by, window, ASKED, CLICKS, "at", correct_for=correct_for * SECOND, emit=emit
    )


def earlier(kind: str, start: dt.datetime, lag: int) -> dt.datetime:
    """When the window so many windows before one that starts then started."""
    if kind == "days":
        local = start.astimezone(BERLIN).replace(tzinfo=None) - dt.timedelta(days=lag)
        return local.replace(tzinfo=BERLIN).astimezone(dt.UTC)
    return start.astimezone(dt.UTC) - dt.timedelta(seconds=lag * STEP[kind])


def compared(value: Any, before: Any) -> Row:
    is_nothing = value is None or before is None
    ratio = None if is_nothing or before == 0 else float(value) / float(before)
    return {"before": before, "difference": None if is_nothing else value - before, "ratio": ratio}


def scored(value: Any, past: list[Any], measure: Anomaly) -> Row:
    past = [float(each) for each in past if each is not None]
    if not past:
        return {"expected": None, "score": None, "unusual": None}
    expected = statistics.median(past)
    if value is None:
        return {"expected": expected, "score": None, "unusual": None}
    away = [abs(each - expected) for each in past]
    distance = float(value) - expected
    if median := statistics.median(away):
        score = 0.6745 * distance / median
    elif mean := math.fsum(away) / len(away):
        score = distance / (1.253314 * mean)
    else:
        score = distance and math.copysign(math.inf, distance)
    unusual = None
    if abs(score) > measure.threshold and len(past) >= min(5, measure.history // 2):
        unusual = "high" if score > 0 else "low"
    return {"expected": expected, "score": score, "unusual": unusual}


def expected(kind: str, measure: Measure, table: Sequence[Row], by: Sequence[str]) -> list[str]:
    def place(row: Row, lag: int = 0) -> tuple[Any, ...]:
        return (*(row[name] for name in by), earlier(kind, row["window"]["start"], lag))

    rows = {place(row): row for row in table}
    found = []
    for row in table:
        said: Row = {}
        past = [rows.get(place(row, lag)) for lag in measure.lags.tolist()]
        for name in MEASURED:
            values = [each and each[name] for each in past]
            if isinstance(measure, Anomaly):
                of_name = scored(row[name], values, measure)
            else:
                of_name = compared(row[name], values[0])
            said |= {f"{name}_{word}": each for word, each in of_name.items()}
        time = row.pop("_time")
        found.append(rounded({**row, **said, "_time": time}))
        row["_time"] = time
    return sorted(map(text, found))


def rounded(row: Row) -> Row:
    """As doubles are added in another order in an oracle."""
    return {
        name: float(f"{value:.9g}") + 0.0 if isinstance(value, float) else value
        for name, value in row.items()
    }


def standing(changes: Sequence[Row]) -> list[Row]:
    """The rows that changes leave."""
    rows: dict[str, Row] = {}
    for change in changes:
        row = {name: value for name, value in change.items() if name != "_weight"}
        if change["_weight"] > 0:
            rows[text(row)] = row
        else:
            del rows[text(row)]
    return list(rows.values())


Batches = tuple[int, list[tuple[list[Row], int]]]


@st.composite
def _batches(draw: st.DrawFn, unit: int, begin: int) -> Batches:
    """How long is corrected, and batches of rows with the clock of each; `unit` is in seconds.

    A clock never goes back, and no row is further behind the one before than what is corrected.
    """
    correct_for = draw(st.sampled_from([0, 4, 30])) * unit
    clock = NOT_YET
    batches = []
    for _ in range(draw(st.integers(1, 5))):
        least = max(begin, clock - correct_for)
        rows = [
            {
                "k": draw(st.sampled_from(["a", None])),
                "g": draw(st.integers(0, 1)),
                "v": draw(st.sampled_from([None, Decimal(0), Decimal(1), Decimal("-7.25")])),
                "at": (least + draw(st.integers(0, 30)) * unit) * SECOND,
            }
            for _ in range(draw(st.integers(0, 8)))
        ]
        batches.append((rows, clock))
        clock = max(clock, begin + draw(st.integers(0, 45)) * unit)
    return correct_for, batches


@pytest.mark.parametrize("said", MEASURES)
@given(st.sampled_from(list(WINDOWS)), st.sampled_from(["final", "changes"]), st.data())
@settings(deadline=None, max_examples=30)
def test_after_every_batch_as_if_all_windows_were_there_at_once(
    said: str, kind: str, emit: str, data: st.DataObject
) -> None:
    by = data.draw(st.sampled_from([(), ("k",), ("g", "k")]))
    unit, begin = (DAY // 4, int(SPRING.timestamp()) - 5 * DAY) if kind == "days" else (1, 0)
    correct_for, steps = data.draw(_batches(unit, begin))
    source = windowed(WINDOWS[kind], by, correct_for, emit)
    kernel = made(source, MEASURES[said], by, correct_for)
    buckets, cuts = data.draw(st.integers(1, 2)), data.draw(st.lists(st.integers(0, 6), max_size=2))
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "_LOOKUPS_AT_ONCE", 30)
        windows = Query(Path(folder) / "windows", source)
        query = Query(Path(folder) / "series", kernel, buckets=buckets)
        for rows, clock in [*steps, ([], AT_THE_END)]:
            time = {NOT_YET: None, AT_THE_END: END}.get(clock, clock * SECOND)
            changed = windows.batch([batch_of(CLICKS, rows)], clock=time)
            mishap = data.draw(st.sampled_from(MISHAPS))
            given = batch_of(source.output, data.draw(st.permutations(changed)))
            query.batch(cut(given, cuts), mishap, time)
            weighed(query.changes, [*by, "window"])  # each fits the rows there are
            found = sorted(text(rounded(row)) for row in standing(query.changes))
            assert found == expected(kind, kernel.measure, standing(windows.changes), by)
        assert query.state_rows() == 0
        assert query.late() == 0


TABLE = pa.schema(
    [
        ("window", windowed(WINDOWS["tumbling"]).output.field("window").type),
        ("x", pa.float64()),
        ("_weight", pa.int32()),
    ]
)


def row(number: int, value: float, weight: int = 1) -> Row:
    begin = number * 4 * SECOND
    return {"window": {"start": begin, "end": begin + 4 * SECOND}, "x": value, "_weight": weight}


def over(folder: Path, measure: Measure, correct_for: int = 0) -> Query:
    window = tumbling("4s")
    kernel = SeriesKernel((), window, TABLE, measure, correct_for=correct_for * SECOND)
    return Query(folder, kernel)


@pytest.mark.parametrize("measure", [Comparison(3), Anomaly(3, 3.5)])
def test_windows_are_let_go_when_none_that_looks_back_at_them_changes(
    measure: Measure, tmp_path: Path
) -> None:
    query = over(tmp_path, measure, correct_for=5)
    query.batch([batch_of(TABLE, [row(0, 1)])], clock=4 * SECOND)
    query.batch([], clock=(4 * 4 + 5) * SECOND - 1)
    assert query.state_rows() == 1
    query.batch([batch_of(TABLE, [row(3, 1)])], clock=(4 * 4 + 5) * SECOND)
    assert query.state_rows() == 1
    assert query.changes[-1][query.kernel.output.names[2]] == 1.0
    query.batch([batch_of(TABLE, [row(3, 1, -1)])], clock=(4 * 4 + 5) * SECOND)
    assert query.late() == 1
    assert len(query.changes) == 2


def test_a_window_that_changes_changes_those_that_look_back_at_it(tmp_path: Path) -> None:
    query = over(tmp_path, Comparison(), correct_for=60)
    query.batch([batch_of(TABLE, [row(each, 2.0**each) for each in range(4)])], clock=0)
    changed = query.batch([batch_of(TABLE, [row(1, 8, 1), row(1, 2, -1)])], clock=0)
    told = [(each["x"], each["x_difference"], each["x_ratio"], each["_weight"]) for each in changed]
    assert sorted(told, key=lambda each: each[::-1]) == [
        (2, 1, 2, -1),
        (4, 2, 2, -1),
        (4, -4, 0.5, 1),
        (8, 7, 8, 1),
    ]
    gone = query.batch([batch_of(TABLE, [row(2, 4, -1)])], clock=0)
    left = [(each["x"], each["x_difference"], each["_weight"]) for each in gone]
    assert left == [(4, -4, -1), (8, 4, -1), (8, None, 1)]


def test_what_comes_and_goes_in_one_batch_changes_nothing(tmp_path: Path) -> None:
    query = over(tmp_path, Comparison())
    query.batch([batch_of(TABLE, [row(1, 2)])], clock=0)
    there_and_back = [row(1, 3, 1), row(1, 2, -1), row(1, 3, -1), row(1, 2, 1)]
    assert query.batch([batch_of(TABLE, there_and_back)], clock=0) == []
    assert query.batch([batch_of(TABLE, [row(5, 3, 1), row(5, 3, -1)])], clock=0) == []


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("past", "value", "said"),
    [
        ([1, 2, 3, 4, 5], 10, (3.0, 0.6745 * 7, "high")),
        ([1, 2, 3, 4, 5], -10, (3.0, 0.6745 * -13, "low")),
        ([1, 2, 3, 4, 5], 8, (3.0, 0.6745 * 5, None)),
        ([1, 2, 3, 4], 100, (2.5, 0.6745 * 97.5, None)),  # too few to tell
        ([7, 7, 7, 7, 17], 17, (7.0, 10 / (1.253314 * 2), "high")),
        ([7, 7, 7, 7, 7], 7, (7.0, 0.0, None)),
        ([7, 7, 7, 7, 7], 8, (7.0, INF, "high")),
        ([7, 7, 7, 7, 7], 6, (7.0, -INF, "low")),
        ([1, NAN, 2, 3, INF, -INF, 4, 5], 10, (3.0, 0.6745 * 7, "high")),
        ([1, 2, 3, 4, 5], NAN, (3.0, None, None)),
        ([1, 2, 3, 4, 5], -INF, (3.0, -INF, "low")),
        ([NAN, NAN], 1, (None, None, None)),
        ([1e308, 1e308, 1e308, -1e308, 1e308], 1e308, (1e308, 0.0, None)),
    ],
)
def test_scores(past: list[float], value: float, said: tuple[Any, ...], tmp_path: Path) -> None:
    query = over(tmp_path, Anomaly(10, 3.5))
    rows = [row(number, each) for number, each in enumerate([*past, value])]
    query.batch([batch_of(TABLE, rows)], clock=0)
    last = max(query.changes, key=lambda each: each["_time"])
    found = tuple(last[f"x_{word}"] for word in ("expected", "score", "unusual"))
    assert found == pytest.approx(said)


def test_history_of_one_window_is_enough_for_itself(tmp_path: Path) -> None:
    query = over(tmp_path, Anomaly(1, 3.5))
    query.batch([batch_of(TABLE, [row(0, 1), row(1, 2)])], clock=0)
    assert query.changes[-1]["x_unusual"] == "high"


def test_nan_is_compared_as_a_number_is(tmp_path: Path) -> None:
    query = over(tmp_path, Comparison())
    query.batch([batch_of(TABLE, [row(0, NAN), row(1, 1), row(2, NAN)])], clock=0)
    nothing = {"before": None, "difference": None, "ratio": None}
    for said, change in zip(
        [nothing, compared(1, NAN), compared(NAN, 1.0)], query.changes, strict=True
    ):
        assert text({word: change[f"x_{word}"] for word in said}) == text(said)
    assert query.batch([batch_of(TABLE, [row(0, NAN, -1), row(0, NAN)])], clock=0) == []


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        (pa.int64(), (2**63 - 1, -1), "int64"),
        (pa.decimal128(38, 0), (Decimal("9" * 38), Decimal(-1)), "decimal128"),
    ],
)
def test_a_difference_that_leaves_its_type(
    kind: pa.DataType, values: tuple[Any, Any], told: str
) -> None:
    later, sooner = (pa.array([each], kind) for each in values)
    assert Comparison().columns(later, later)[1:] == [pa.array([0], kind), pa.array([1.0])]
    with pytest.raises(KernelError, match=f"leaves {told}"):
        Comparison().columns(later, sooner)


@pytest.mark.parametrize(
    ("window", "duration", "count"),
    [
        (tumbling("1 minute"), "1 week", 7 * 24 * 60),
        (tumbling("1 minute"), dt.timedelta(hours=1), 60),
        (hopping("10 minutes", "2 minutes"), "1 hour", 30),
        (hopping("5s", "3s"), "6s", 2),
        (tumbling("1 day", zone="Europe/Berlin"), "1 week", 7),
        (tumbling("1 day", zone="Europe/Berlin"), "48 hours", 2),
        (tumbling("2 days", zone="Europe/Berlin"), "2 weeks", 7),
        (tumbling("1 week", zone="UTC"), "14 days", 2),
        (tumbling("1 month"), "1 year", 12),
        (hopping("6 months", "3 months"), "1 year", 4),
        (tumbling("1 year"), "24 months", 2),
    ],
)
def test_how_many_windows_it_is_back(window: Hopping, duration: Any, count: int) -> None:
    assert windows_back(window, duration) == count


@pytest.mark.parametrize(
    ("window", "duration", "hint"),
    [
        (tumbling("1 minute"), "90 seconds", "of 1 minute"),
        (tumbling("1 minute"), "1 month", "of 1 minute"),
        (tumbling("500ms"), "1250ms", "of 500 ms"),
        (tumbling("1 week", zone="UTC"), "1 day", "of 1 week"),
        (tumbling("7 days"), "1 day", "of 1 week"),
        (hopping("1 hour", "2 days"), "1 day", "of 2 days"),
        (tumbling("1 day"), "1 hour", "of 1 day"),
        (hopping("1 year", "3 months"), "1 month", "of 3 months"),
        (tumbling("1 day", zone="UTC"), "1 hour", "of 1 day"),
        (tumbling("1 month"), "1 week", "of 1 month"),
        (tumbling("1 minute"), "soon", "10s"),
        (session("1 minute"), "1 week", "tumbling"),
        (sliding("1 minute"), "1 week", "tumbling"),
    ],
)
def test_where_no_window_begins(window: Any, duration: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        windows_back(window, duration)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"window": session("1 minute")}, "session windows"),
        ({"schema": TABLE.remove(2)}, "table"),
        ({"schema": TABLE.set(1, pa.field("x", pa.bool_()))}, "none of the results is a number"),
        ({"schema": TABLE.append(pa.field("x_before", pa.string()))}, "'x_before'"),
    ],
)
def test_what_cannot_be_set_against_others_is_refused(change: dict[str, Any], told: str) -> None:
    options = {"by": (), "window": tumbling("4s"), "schema": TABLE, **change}
    with pytest.raises(InvalidInput, match=told) as refused:
        SeriesKernel(**options, measure=Comparison())
    assert refused.value.hint


@pytest.mark.parametrize(("history", "threshold"), [(0, 3.5), (10_001, 3.5), (60, 0), (60, NAN)])
def test_anomalies_that_cannot_be_meant(history: int, threshold: float) -> None:
    with pytest.raises(InvalidInput):
        Anomaly(history, threshold)
