"""Auctions in the proportions of the Nexmark benchmark: of 50 events one is a new person, three are
new auctions and 46 are bids, most of them by few people on few auctions; and profiles of people
that change.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.bench.views.stored import HOUR, START, Part, closing_rows
from penstock.events.compiled import Numbers

_ROUND, _NEW_AUCTIONS = 50, 3
_FIRST = 1_000  # of the numbers of people and auctions
_A_MILLISECOND = 10
_HOT_EVERY, _RECENT_PEOPLE, _RECENT_AUCTIONS = 100, 1_000, 100
_LONGEST = 20_000  # milliseconds that an auction is open
_CATEGORIES = 5
_STATES = np.array(["OR", "ID", "CA", "AZ", "WA", "WY"])
_CITIES = np.array(["Phoenix", "Seattle", "Boise", "Portland", "Bend", "Redmond", "Kent"])
_NAMES = np.array(["Ada", "Alan", "Barbara", "Donald", "Edsger", "Grace", "Leslie", "Niklaus"])
_CHANNELS = np.array(["web", "phone", "shop", "mail", *(f"channel-{n}" for n in range(100))])

PERSON = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "email": pa.string(),
        "card": pa.string(),
        "city": pa.string(),
        "state": pa.string(),
        "ts": pa.timestamp("ms", "UTC"),
        "extra": pa.string(),
    }
)
AUCTION = pa.schema(
    {
        "id": pa.int64(),
        "item": pa.string(),
        "description": pa.string(),
        "initial_bid": pa.int64(),
        "reserve": pa.int64(),
        "ts": pa.timestamp("ms", "UTC"),
        "expires": pa.timestamp("ms", "UTC"),
        "seller": pa.int64(),
        "category": pa.int64(),
        "extra": pa.string(),
    }
)
BID = pa.schema(
    {
        "auction": pa.int64(),
        "bidder": pa.int64(),
        "price": pa.int64(),
        "channel": pa.string(),
        "url": pa.string(),
        "ts": pa.timestamp("ms", "UTC"),
        "extra": pa.string(),
    }
)
PROFILE = pa.schema(
    {
        "id": pa.int64(),
        "level": pa.int64(),
        "ts": pa.timestamp("ms", "UTC"),
    }
)


@dataclass(frozen=True)
class Auctions:
    """`slices` times `rounds` of 50 events, ten a millisecond; of each, without the `bids`, only
    four are there."""

    slices: int
    rounds: int
    bids: bool = True

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        named = {"person": PERSON, "auction": AUCTION}
        return named | {"bid": BID, "profile": PROFILE} if self.bids else named

    def parts(self) -> Iterator[Part]:
        for number in range(self.slices):
            random = np.random.default_rng(number)
            rounds = np.arange(number * self.rounds, (number + 1) * self.rounds)
            part = {"person": _people(rounds, random), "auction": _auctions(rounds, random)}
            if self.bids:
                part |= {"bid": _bids(rounds, random), "profile": _profiles(rounds, random)}
            yield part
        last = self.slices * self.rounds * _ROUND // _A_MILLISECOND
        for number in (1, 2):
            closing = START + last + number * HOUR
            yield closing_rows(self.schemas, closing)


def _people(rounds: Numbers, random: np.random.Generator) -> pa.Table:
    count = len(rounds)
    names = random.choice(_NAMES, count)
    columns = {
        "id": rounds + _FIRST,
        "name": names,
        "email": np.char.add(names, "@example.com"),
        "card": np.char.zfill(random.integers(0, 10**16, count).astype("U16"), 16),
        "city": random.choice(_CITIES, count),
        "state": random.choice(_STATES, count),
        "ts": _time(rounds * _ROUND),
        "extra": ["x" * 80] * count,
    }
    return pa.table(columns, schema=PERSON)


def _auctions(rounds: Numbers, random: np.random.Generator) -> pa.Table:
    rounds = np.repeat(rounds, _NEW_AUCTIONS)
    count = len(rounds)
    place = np.tile(np.arange(_NEW_AUCTIONS), count // _NEW_AUCTIONS)
    numbers = rounds * _NEW_AUCTIONS + place + _FIRST
    price = _prices(count, random)
    time = _time(rounds * _ROUND + 1 + place)
    columns = {
        "id": numbers,
        "item": np.char.add("item ", numbers.astype("U12")),
        "description": ["d" * 60] * count,
        "initial_bid": price,
        "reserve": price * 2,
        "ts": time,
        "expires": time.cast(pa.int64()).to_numpy() + random.integers(2, _LONGEST, count),
        "seller": _one_of(rounds, _RECENT_PEOPLE, 0.75, random),
        "category": 10 + random.integers(0, _CATEGORIES, count),
        "extra": ["y" * 120] * count,
    }
    return pa.table(_cast(columns, AUCTION), schema=AUCTION)


def _bids(rounds: Numbers, random: np.random.Generator) -> pa.Table:
    place = np.tile(np.arange(1 + _NEW_AUCTIONS, _ROUND), len(rounds))
    rounds = np.repeat(rounds, _ROUND - 1 - _NEW_AUCTIONS)
    count = len(rounds)
    # Half of the channels' names are one of the first four.
    channel = np.where(
        random.random(count) < 0.5,
        random.integers(0, 4, count),
        random.integers(4, len(_CHANNELS), count),
    )
    newest = rounds * _NEW_AUCTIONS + _NEW_AUCTIONS - 1
    urls = pa.array(np.char.add("https://example.com/item?from=", _CHANNELS))
    columns = {
        "auction": _one_of(newest, _RECENT_AUCTIONS, 0.5, random),
        "bidder": _one_of(rounds, _RECENT_PEOPLE, 0.75, random),
        "price": _prices(count, random),
        "channel": pa.array(_CHANNELS).take(pa.array(channel)),
        "url": urls.take(pa.array(channel)),
        "ts": _time(rounds * _ROUND + place),
        "extra": ["z" * 20] * count,
    }
    return pa.table(columns, schema=BID)


def _profiles(rounds: Numbers, random: np.random.Generator) -> pa.Table:
    """One change a round, of somebody who bids."""
    columns = {
        "id": _one_of(rounds, _RECENT_PEOPLE, 0.5, random),
        "level": random.integers(0, 10, len(rounds)),
        "ts": _time(rounds * _ROUND),
    }
    return pa.table(columns, schema=PROFILE)


def _one_of(newest: Numbers, recent: int, hot: float, random: np.random.Generator) -> Numbers:
    """The newest that a hundred divides, in this share of the cases; otherwise a recent one."""
    count = len(newest)
    few = newest // _HOT_EVERY * _HOT_EVERY
    many = newest - (random.random(count) * np.minimum(newest + 1, recent)).astype(np.int64)
    chosen: Numbers = np.where(random.random(count) < hot, few, many) + _FIRST
    return chosen


def _prices(count: int, random: np.random.Generator) -> Numbers:
    prices: Numbers = np.round(10 ** (random.random(count) * 6) * 100).astype(np.int64)
    return prices


def _time(events: Numbers) -> pa.Array:
    return pa.array(START + events // _A_MILLISECOND).cast(pa.timestamp("ms", "UTC"))


def _cast(columns: dict[str, object], schema: pa.Schema) -> dict[str, pa.Array]:
    arrays = {name: pa.array(each) for name, each in columns.items()}
    return {name: each.cast(schema.field(name).type) for name, each in arrays.items()}
