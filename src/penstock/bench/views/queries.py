"""What is asked of the tables, in the words of penstock, of Spark and of Flink SQL."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

import penstock as ps
from penstock.bench.figures import Row
from penstock.bench.spark_figures import NATIVE, PENSTOCK

WAIT = "4 seconds"
_SPEED = "records/s"
AUCTIONS, SALES, TWEETS = "auctions", "sales", "tweets"
_TS = "ts TIMESTAMP_LTZ(3)"
_BID = ("auction", "bidder", "price", "ts")
_CLOCK = "WATERMARK FOR ts AS ts - INTERVAL '4' SECOND"
FLINK_TYPES = {
    "person": "id BIGINT, name STRING, email STRING, card STRING, city STRING, state STRING, "
    f"{_TS}, extra STRING, {_CLOCK}",
    "auction": "id BIGINT, item STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    f"{_TS}, expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT, extra STRING, {_CLOCK}",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    f"{_TS}, extra STRING, {_CLOCK}",
    "profile": f"id BIGINT, level BIGINT, {_TS}, {_CLOCK}, PRIMARY KEY (id) NOT ENFORCED",
    "tweets": f"id BIGINT, sender_id BIGINT, `text` STRING, {_TS}, {_CLOCK}",
    "follows": "follower_id BIGINT, followee_id BIGINT",
}

Frames = Mapping[str, DataFrame]
Read = Callable[..., DataFrame]  # a table, or with `columns` some of it


class Asked(NamedTuple):
    """About the tables that are `given` under a name.

    `truth` is the query over all rows at once, as Spark understands it. What `flink` gives is of
    the types `flink_types`. Spark alone has no answer to all as a stream. Whoever is in `closed`
    gives its last rows when later ones have come.
    """

    row: Row
    given: str
    tables: tuple[str, ...]
    penstock: Callable[[Mapping[str, Read], str], DataFrame]
    truth: str
    flink: str
    flink_types: str
    spark: Callable[[Frames], DataFrame] | None = None
    closed: frozenset[str] = frozenset()


def _view(text: str) -> Callable[[Mapping[str, Read], str], DataFrame]:
    def asked(tables: Mapping[str, Read], checkpoint: str) -> DataFrame:
        timed = {name: _timed(read()) for name, read in tables.items()}
        return ps.sql(text, checkpoint=checkpoint, **timed)

    return asked


def _timed(frame: DataFrame, column: str = "ts") -> DataFrame:
    return ps.timed(frame, column, wait=WAIT) if column in frame.columns else frame


def _within(tables: Mapping[str, Read], checkpoint: str) -> DataFrame:
    auctions = tables["auction"](columns={"id": "id", "seller": "seller", "opened": "ts"})
    auctions, bids = _timed(auctions, "opened"), _timed(tables["bid"](columns=_BID))
    within = ("0s", "10s")
    found = ps.join(auctions, bids, on="id = auction", within=within, checkpoint=checkpoint)
    return found.select("id", "seller", "bidder", "price", "ts")


def _within_by_spark(frames: Frames) -> DataFrame:
    auctions = frames["auction"].selectExpr("id", "seller", "ts AS opened")
    auctions = auctions.withWatermark("opened", WAIT)
    bids = frames["bid"].select(*_BID).withWatermark("ts", WAIT)
    condition = "id = auction AND ts BETWEEN opened AND opened + INTERVAL 10 SECONDS"
    return auctions.join(bids, expr(condition)).select("id", "seller", "bidder", "price", "ts")


def _as_of(tables: Mapping[str, Read], checkpoint: str) -> DataFrame:
    profiles = tables["profile"](columns={"id": "id", "level": "level", "since": "ts"})
    table = ps.changes(_timed(profiles, "since"), key="id", checkpoint=checkpoint)
    bids = _timed(tables["bid"](columns=_BID))
    found = ps.enrich(bids, table, on="bidder = id", how="inner", checkpoint=checkpoint)
    return found.select("auction", "bidder", "price", "ts", "level")


_WITHIN = """\
SELECT A.id, A.seller, B.bidder, B.price, B.ts FROM auction A JOIN bid B
ON A.id = B.auction AND B.ts BETWEEN A.ts AND A.ts + INTERVAL '10' SECOND"""

_AS_OF = """\
SELECT auction, bidder, price, ts, level FROM (
    SELECT B.*, P.level, P.ts AS since, max(P.ts) OVER (
        PARTITION BY B.auction, B.bidder, B.price, B.ts, B.place
    ) AS latest
    FROM (SELECT *, row_number() OVER (ORDER BY ts) AS place FROM bid) B
    JOIN profile P ON B.bidder = P.id AND P.ts <= B.ts
) WHERE since = latest"""
_AS_OF_FLINK = """\
SELECT B.auction, B.bidder, B.price, B.ts, P.level
FROM bid B JOIN profile FOR SYSTEM_TIME AS OF B.ts AS P ON B.bidder = P.id"""

_TIMELINES = """\
SELECT timeline_id, id, sender_id, ts FROM (
    SELECT F.follower_id AS timeline_id, T.id, T.sender_id, T.ts, ROW_NUMBER() OVER (
        PARTITION BY F.follower_id ORDER BY T.ts DESC, T.id DESC
    ) AS n
    FROM tweets T JOIN follows F ON F.followee_id = T.sender_id
) WHERE n <= 100"""

_Q3 = """\
SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')"""


def _q3_by_spark(frames: Frames) -> DataFrame:
    auctions = frames["auction"].where("category = 10").selectExpr("id AS auction", "seller")
    people = frames["person"].where("state IN ('OR', 'ID', 'CA')")
    joined = auctions.join(people, expr("seller = id"))
    return joined.selectExpr("name", "city", "state", "auction AS id")


_Q4 = """\
SELECT category, AVG({final}) AS price FROM (
    SELECT MAX(B.price) AS final, A.category, A.id FROM auction A JOIN bid B
    ON A.id = B.auction WHERE B.ts BETWEEN A.ts AND A.expires GROUP BY A.id, A.category
) Q GROUP BY category"""

_Q8 = """\
SELECT P.id, P.name, P.window_start FROM (
    SELECT id, name, window_start, window_end FROM {person}
    GROUP BY id, name, window_start, window_end
) P JOIN (
    SELECT seller, window_start, window_end FROM {auction}
    GROUP BY seller, window_start, window_end
) A ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end"""
_TUMBLED = {
    name: f"TUMBLE(TABLE {name}, DESCRIPTOR(ts), INTERVAL '10' SECOND)"
    for name in ("person", "auction")
}
_Q8_TRUTH = """\
SELECT DISTINCT P.id, P.name, timestamp_seconds(unix_seconds(P.ts) DIV 10 * 10) AS window_start
FROM person P JOIN auction A
ON P.id = A.seller AND unix_seconds(P.ts) DIV 10 = unix_seconds(A.ts) DIV 10"""


def _q8_by_spark(frames: Frames) -> DataFrame:
    people = frames["person"].withWatermark("ts", WAIT)
    people = people.groupBy("id", "name", expr("window(ts, '10 seconds')").alias("window")).count()
    auctions = frames["auction"].withWatermark("ts", WAIT)
    auctions = auctions.groupBy("seller", expr("window(ts, '10 seconds')").alias("other")).count()
    joined = people.drop("count").join(
        auctions.drop("count"), expr("id = seller AND window = other")
    )
    return joined.selectExpr("id", "name", "window.start AS window_start")


_Q9 = """\
SELECT id, item, seller, category, bidder, price, bid_ts FROM (
    SELECT A.*, B.bidder, B.price, B.ts AS bid_ts, ROW_NUMBER() OVER (
        PARTITION BY A.id ORDER BY B.price DESC, B.ts, B.bidder
    ) AS n
    FROM auction A JOIN bid B ON A.id = B.auction WHERE B.ts BETWEEN A.ts AND A.expires
) WHERE n <= 1"""

_Q20 = """\
SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.ts, B.extra, A.item, A.description,
    A.initial_bid, A.reserve, A.ts AS auction_ts, A.expires, A.seller, A.category,
    A.extra AS auction_extra
FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10"""


def _q20_by_spark(frames: Frames) -> DataFrame:
    auctions = frames["auction"].where("category = 10")
    auctions = auctions.withColumnsRenamed({"ts": "auction_ts", "extra": "auction_extra"})
    joined = frames["bid"].join(auctions, expr("auction = id"))
    return joined.drop("id")


INTERVAL = Asked(
    Row("interval join: bids within 10 s", _SPEED),
    AUCTIONS,
    ("auction", "bid"),
    _within,
    _WITHIN,
    _WITHIN,
    "id BIGINT, seller BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP_LTZ(3)",
    _within_by_spark,
)
TEMPORAL = Asked(
    Row("temporal join: profiles as of bids", _SPEED),
    AUCTIONS,
    ("profile", "bid"),
    _as_of,
    _AS_OF,
    _AS_OF_FLINK,
    "auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP_LTZ(3), level BIGINT",
    closed=frozenset({PENSTOCK}),
)
TIMELINES = Asked(
    Row("timelines: the newest 100 of each user", _SPEED),
    TWEETS,
    ("tweets", "follows"),
    _view(_TIMELINES),
    _TIMELINES,
    _TIMELINES,
    "timeline_id BIGINT, id BIGINT, sender_id BIGINT, ts TIMESTAMP_LTZ(3)",
)
Q3 = Asked(
    Row("q3: sellers in three states", _SPEED),
    SALES,
    ("person", "auction"),
    _view(_Q3),
    _Q3,
    _Q3,
    "name STRING, city STRING, state STRING, id BIGINT",
    _q3_by_spark,
)
Q4 = Asked(
    Row("q4: mean price of categories", _SPEED),
    AUCTIONS,
    ("auction", "bid"),
    _view(_Q4.format(final="final")),
    _Q4.format(final="final"),
    _Q4.format(final="CAST(final AS DOUBLE)"),
    "category BIGINT, price DOUBLE",
)
Q8 = Asked(
    Row("q8: new people who sell", _SPEED),
    SALES,
    ("person", "auction"),
    _view(_Q8.format(**_TUMBLED)),
    _Q8_TRUTH,
    _Q8.format(**{name: f"TABLE({each})" for name, each in _TUMBLED.items()}),
    "id BIGINT, name STRING, window_start TIMESTAMP(3)",
    _q8_by_spark,
    closed=frozenset({NATIVE}),
)
Q9 = Asked(
    Row("q9: winning bids", _SPEED),
    AUCTIONS,
    ("auction", "bid"),
    _view(_Q9),
    _Q9,
    _Q9,
    "id BIGINT, item STRING, seller BIGINT, category BIGINT, bidder BIGINT, price BIGINT, "
    "bid_ts TIMESTAMP_LTZ(3)",
)
Q20 = Asked(
    Row("q20: bids with their auctions", _SPEED),
    AUCTIONS,
    ("auction", "bid"),
    _view(_Q20),
    _Q20,
    _Q20,
    "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
    "ts TIMESTAMP_LTZ(3), extra STRING, item STRING, description STRING, initial_bid BIGINT, "
    "reserve BIGINT, auction_ts TIMESTAMP_LTZ(3), expires TIMESTAMP_LTZ(3), seller BIGINT, "
    "category BIGINT, auction_extra STRING",
    _q20_by_spark,
)

ALL = (INTERVAL, TEMPORAL, TIMELINES, Q3, Q4, Q8, Q9, Q20)
