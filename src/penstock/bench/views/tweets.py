"""Tweets, and who follows whom."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.bench.views.stored import HOUR, START, Part, closing_rows

TWEETS = pa.schema(
    {
        "id": pa.int64(),
        "sender_id": pa.int64(),
        "text": pa.string(),
        "ts": pa.timestamp("ms", "UTC"),
    }
)
FOLLOWS = pa.schema({"follower_id": pa.int64(), "followee_id": pa.int64()})


@dataclass(frozen=True)
class Tweets:
    """`slices` times `tweets` of so many users, each of whom follows `followed` others: some from
    the beginning, others later on."""

    slices: int
    tweets: int
    users: int
    followed: int

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return {"tweets": TWEETS, "follows": FOLLOWS}

    def parts(self) -> Iterator[Part]:
        for number in range(self.slices):
            yield {"tweets": self._sent(number), "follows": self._begun(number)}
        for number in (1, 2):
            time = START + self.slices * self.tweets + number * HOUR
            yield closing_rows(self.schemas, time)

    def _sent(self, number: int) -> pa.Table:
        random = np.random.default_rng(number)
        numbers = np.arange(number * self.tweets, (number + 1) * self.tweets)
        columns = {
            "id": numbers,
            # Some have much to say.
            "sender_id": (random.random(self.tweets) ** 2 * self.users).astype(np.int64),
            "text": np.char.add("something that came to mind, no. ", numbers.astype("U12")),
            "ts": pa.array(START + numbers).cast(TWEETS.field("ts").type),
        }
        return pa.table(columns, schema=TWEETS)

    def _begun(self, number: int) -> pa.Table:
        """Nobody follows the same person twice."""
        some = np.arange(number, self.followed, self.slices)
        follower = np.repeat(np.arange(self.users), len(some))
        step = np.tile(1 + some * (self.users // self.followed), self.users)
        columns = {"follower_id": follower, "followee_id": (follower + step) % self.users}
        return pa.table(columns, schema=FOLLOWS)
