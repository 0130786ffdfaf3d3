from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.bench.views.auctions import Auctions
from penstock.bench.views.stored import Stored, Tables
from penstock.bench.views.tweets import Tweets

AUCTIONS = Auctions(slices=3, rounds=200)
TWEETS = Tweets(slices=3, tweets=200, users=30, followed=6)


def whole(tables: Tables, name: str, *, closing: bool = False) -> pl.DataFrame:
    parts = [part[name] for part in tables.parts()]
    return pl.DataFrame(pa.concat_tables(parts if closing else parts[:-2]))


def test_events_are_in_the_proportions_of_nexmark() -> None:
    counts = {name: len(whole(AUCTIONS, name)) for name in AUCTIONS.schemas}

    assert counts == {"person": 600, "auction": 1_800, "bid": 27_600, "profile": 600}
    assert Auctions(slices=1, rounds=10, bids=False).schemas.keys() == {"person", "auction"}


def test_bids_are_for_auctions_that_there_are_by_people_that_there_are() -> None:
    bids, auctions = whole(AUCTIONS, "bid"), whole(AUCTIONS, "auction")
    people = whole(AUCTIONS, "person")

    assert bids.join(auctions, left_on="auction", right_on="id", how="anti").is_empty()
    assert bids.join(people, left_on="bidder", right_on="id", how="anti").is_empty()
    assert auctions.join(people, left_on="seller", right_on="id", how="anti").is_empty()
    assert auctions["id"].is_unique().all()
    assert people["id"].is_unique().all()
    assert (auctions["expires"] > auctions["ts"]).all()
    # The question as of a time has one answer.
    assert whole(AUCTIONS, "profile").select("id", "ts").is_unique().all()


def test_half_of_the_bids_are_for_one_auction_in_a_hundred() -> None:
    hot = whole(AUCTIONS, "bid")["auction"] % 100 == 0

    assert 0.45 < hot.mean() < 0.6  # type: ignore[operator]


def test_everybody_follows_as_many_others_and_nobody_twice() -> None:
    follows = whole(TWEETS, "follows")

    assert follows.is_unique().all()
    assert set(follows["follower_id"].value_counts()["count"]) == {TWEETS.followed}
    assert (follows["follower_id"] != follows["followee_id"]).all()


@pytest.mark.parametrize("tables", [AUCTIONS, TWEETS], ids=["auctions", "tweets"])
def test_everybody_reads_the_same_rows_in_the_order_of_their_slices(
    tables: Tables, tmp_path: Path
) -> None:
    stored = Stored(tables, tmp_path)
    stored.write()

    for name in tables.schemas:
        rows = whole(tables, name, closing=True)
        names = rows.columns
        sorted_rows = rows.sort(names)
        for folder in (stored.slices(name), stored.whole(name)):
            assert pl.DataFrame(pq.read_table(folder)).sort(names).equals(sorted_rows)
        assert stored.rows(name) == len(rows) - 4
        files = sorted(stored.slices(name).iterdir())
        moments = [path.stat().st_mtime for path in files]
        assert len(files) == 2 * (3 + 2)
        assert moments == sorted(moments)


def test_the_last_rows_pass_every_clock_and_join_with_nothing() -> None:
    *parts, first, second = AUCTIONS.parts()

    last = max(part["bid"]["ts"].to_pylist()[-1] for part in parts)
    seen: set[object] = set()
    for name in AUCTIONS.schemas:
        for rows, hours in ((first[name], 1), (second[name], 2)):
            assert len(rows) == 2
            assert (rows["ts"].to_pylist()[0] - last).total_seconds() >= hours * 3_600 - 1
        values = {str(value) for value in first[name].drop_columns("ts").to_pylist()[0].values()}
        assert not values & seen
        seen |= values - {str(first[name]["ts"].to_pylist()[0])}
