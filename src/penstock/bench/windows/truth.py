"""What the answers must be, by Polars from all rows at once: no figure counts without them."""

from pathlib import Path

import polars as pl

from penstock.bench.windows.events import CLOSING, Events
from penstock.bench.windows.queries import HOPPING, PERCENTILE, ROLLING, SESSIONS, Asked
from penstock.errors import PenstockError

_NEAR = 1e-9


def check(who: str, asked: Asked, results: Path, events: Events, *, interpolated: bool) -> None:
    """Raises PenstockError when the files in a folder have other rows than must be there."""
    right = expected(asked, events, interpolated=interpolated)
    found = pl.read_parquet(results / "part-*").filter(pl.col("by") != CLOSING)
    found = _sorted(found).select(right.columns)
    exact = pl.exclude("value")
    if len(found) != len(right) or not found.select(exact).equals(right.select(exact)):
        wrong = found.join(right, on=found.select(exact).columns, how="anti")
        raise PenstockError(
            f"{who} gives {len(found):,} rows for {asked.row.what}, which are not the "
            f"{len(right):,} that there are",
            hint=f"among them are: {wrong.head(3).rows()}",
        )
    differing = (found["value"] - right["value"]).abs() > _NEAR * right["value"].abs()
    if differing.any():
        raise PenstockError(
            f"{who} gives {differing.sum():,} wrong values for {asked.row.what}",
            hint=f"{found.filter(differing).head(3).rows()} instead of "
            f"{right.filter(differing).head(3).rows()}",
        )


def expected(asked: Asked, events: Events, *, interpolated: bool) -> pl.DataFrame:
    """Sorted. A percentile is one of the values unless it is `interpolated`."""
    rows = pl.concat([pl.DataFrame(part) for part in events.parts()])
    rows = rows.filter(pl.col("key") != CLOSING).sort("at")
    if asked is ROLLING:
        windows = rows.rolling("at", period="5m", group_by="key")
        return _sorted(windows.agg(value=pl.col("amount").mean()).rename({"key": "by"}))
    if asked is SESSIONS:
        return _sorted(_sessions(rows))
    by = "shop" if asked is PERCENTILE else "key"
    period = "10m" if asked is HOPPING else "1m"
    value = _percentile(interpolated) if asked is PERCENTILE else pl.len()
    # Windows begin with the hour, and those before the first row have it too.
    hops = rows.group_by_dynamic(
        "at", every="1m", period=period, offset=f"-{period}", group_by=by, include_boundaries=True
    )
    names = {by: "by", "_lower_boundary": "start", "_upper_boundary": "end"}
    return _sorted(hops.agg(value=value).drop("at").rename(names))


def _sessions(rows: pl.DataFrame) -> pl.DataFrame:
    gap = pl.duration(seconds=30)
    begins = (pl.col("at").diff() > gap).fill_null(True).cum_sum().over("key")
    grouped = rows.group_by(pl.col("key").alias("by"), begins.alias("session"))
    start, end = pl.col("at").min(), pl.col("at").max() + gap
    return grouped.agg(start=start, end=end, value=pl.len()).drop("session")


def _percentile(interpolated: bool) -> pl.Expr:
    if interpolated:
        return pl.col("amount").quantile(0.99, "linear")
    return pl.col("amount").sort().get((pl.len().cast(pl.Int64) * 99 + 99) // 100 - 1)


def _sorted(rows: pl.DataFrame) -> pl.DataFrame:
    """Times in milliseconds, however they were written, and rows in their order."""
    times = pl.col(pl.Datetime).dt.replace_time_zone(None).dt.cast_time_unit("ms")
    rows = rows.with_columns(times, pl.col("value").cast(pl.Float64))
    names = ["by", "at"] if "at" in rows.columns else ["by", "start", "end"]
    return rows.select(*names, "value").sort(*names, "value")
