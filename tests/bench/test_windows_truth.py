"""The answers that contenders are held against, counted out row by row."""

from collections import Counter
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path

import polars as pl
import pytest

from penstock.bench.windows.events import CLOSING, Events
from penstock.bench.windows.queries import (
    ALL,
    HOPPING,
    PERCENTILE,
    ROLLING,
    SESSIONS,
    TUMBLING,
    Asked,
)
from penstock.bench.windows.truth import check, expected
from penstock.errors import PenstockError

EVENTS = Events(slices=2, slice_rows=150, keys=3, shops=2, apart=4_000)
MINUTE = timedelta(minutes=1)


def all_rows() -> list[tuple[int, int, float, datetime]]:
    rows = pl.concat([pl.DataFrame(part) for part in EVENTS.parts()])
    rows = rows.filter(pl.col("key") != CLOSING).with_columns(
        pl.col("at").dt.replace_time_zone(None)
    )
    return rows.sort("at").rows()


def answer(asked: Asked, *, interpolated: bool = False) -> set[tuple[object, ...]]:
    found = expected(asked, EVENTS, interpolated=interpolated).rows()
    assert found == sorted(found)
    return set(found)


@pytest.mark.parametrize(("asked", "panes"), [(TUMBLING, 1), (HOPPING, 10)])
def test_every_row_counts_in_every_window_that_it_is_in(asked: Asked, panes: int) -> None:
    counts: Counter[tuple[int, datetime, datetime]] = Counter()
    for key, _, _, at in all_rows():
        pane = at.replace(second=0, microsecond=0)
        for earlier in range(panes):
            start = pane - earlier * MINUTE
            counts[key, start, start + panes * MINUTE] += 1

    assert answer(asked) == {(*window, count) for window, count in counts.items()}


def test_a_rolling_mean_is_of_the_five_minutes_up_to_a_row() -> None:
    rows = all_rows()
    found = answer(ROLLING)

    assert len(found) == len(rows)
    for by, end, value in found:
        assert isinstance(end, datetime)
        amounts = [
            amount for key, _, amount, at in rows if key == by and end - 5 * MINUTE < at <= end
        ]
        assert value == pytest.approx(sum(amounts) / len(amounts))


def test_a_session_ends_half_a_minute_after_its_last_row() -> None:
    gap = timedelta(seconds=30)
    sessions: dict[tuple[int, datetime], list[datetime]] = {}
    latest: dict[int, tuple[int, datetime]] = {}
    for key, _, _, at in all_rows():
        if key not in latest or at > sessions[latest[key]][-1] + gap:
            latest[key] = key, at
        sessions.setdefault(latest[key], []).append(at)

    assert len(sessions) > 2 * EVENTS.keys
    assert answer(SESSIONS) == {(*of, at[-1] + gap, len(at)) for of, at in sessions.items()}


def test_a_percentile_is_a_value_or_lies_between_two() -> None:
    amounts: dict[tuple[object, ...], list[float]] = {}
    for _, shop, amount, at in all_rows():
        start = at.replace(second=0, microsecond=0)
        amounts.setdefault((shop, start, start + MINUTE), []).append(amount)

    exact = {(*window, sorted(of)[ceil(0.99 * len(of)) - 1]) for window, of in amounts.items()}
    assert answer(PERCENTILE) == exact
    for *window, value in answer(PERCENTILE, interpolated=True):
        below, above = [0.0, *sorted(amounts[tuple(window)])][-2:]
        assert isinstance(value, float)
        assert below <= value <= above


@pytest.mark.parametrize("asked", ALL, ids=lambda asked: asked.row.what)
def test_only_the_right_answer_is_accepted(asked: Asked, tmp_path: Path) -> None:
    right = expected(asked, EVENTS, interpolated=False)
    end = right.tail(1).with_columns(by=pl.lit(CLOSING, pl.Int64))
    times = [name for name in right.columns if name not in ("by", "value")]

    def checked(found: pl.DataFrame) -> None:
        found.write_parquet(tmp_path / "part-0")
        check("somebody", asked, tmp_path, EVENTS, interpolated=False)

    checked(pl.concat([right, end]).reverse())
    late = right.with_columns(pl.col(times[-1]).dt.offset_by("1ms"))
    high = right.with_columns(value=pl.col("value") * 1.000_001)
    for wrong in (right.tail(-1), pl.concat([right, right.head(1)]), late, high):
        with pytest.raises(PenstockError, match="somebody gives"):
            checked(wrong)
