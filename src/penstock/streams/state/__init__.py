"""The state of stateful operators: rows by key, in buckets, versioned by the batches of a query."""

from penstock.streams.state.bucket import EMPTY, BucketState
from penstock.streams.state.durable import clean
from penstock.streams.state.gaps import open_for
from penstock.streams.state.info import (
    BucketInfo,
    counted,
    look_up,
    state_info,
    state_schema,
)
from penstock.streams.state.journal import Journal, restore, settle
from penstock.streams.state.keys import bucket_of
from penstock.streams.state.rescale import forget, rescale
from penstock.streams.state.schema import StateSchema

__all__ = [
    "EMPTY",
    "BucketInfo",
    "BucketState",
    "Journal",
    "StateSchema",
    "bucket_of",
    "clean",
    "counted",
    "forget",
    "look_up",
    "open_for",
    "rescale",
    "restore",
    "settle",
    "state_info",
    "state_schema",
]
