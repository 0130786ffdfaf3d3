"""Steps that were not taken: Spark leaves an operator out of a batch that has nothing for it.

That is so in a query of several sources, when those of the operator have nothing new. Then no
bucket of it has that version, and the next step goes on from the last one there is. A version that
other buckets have is another matter: this one has lost it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import StateMissing
from penstock.streams.state.bucket import EMPTY, BucketState
from penstock.streams.state.durable import BucketFiles


def open_for(
    batch: int,
    address: str,
    warm_folder: str | Path,
    *,
    operator: str,
    bucket: int,
    buckets: int,
    may_begin: Callable[[], bool],
    **more: Any,
) -> BucketState:
    """The state as the last step before this batch left it.

    `may_begin` says whether the operator may not have taken any step before; it is asked when
    nothing is kept. Raises StateMissing otherwise, and as BucketState.open does.
    """
    place = {"operator": operator, "bucket": bucket, "buckets": buckets, **more}
    try:
        return BucketState.open(address, warm_folder, version=batch - 1, **place)
    except StateMissing:
        newest = [_newest(address, operator, each, buckets, batch) for each in range(buckets)]
        last = max(newest)
        if newest[bucket] != last or (last == EMPTY and not may_begin()):
            raise
    if last != EMPTY:
        # Empty deltas, so that versions follow each other without a gap.
        for version in range(last + 1, batch):
            with BucketState.open(address, warm_folder, version=version - 1, **place) as state:
                state.commit(version)
        last = batch - 1
    return BucketState.open(address, warm_folder, version=last, **place)


def _newest(address: str, operator: str, bucket: int, buckets: int, below: int) -> int:
    deltas, _ = BucketFiles(address, operator, bucket, buckets).versions()
    return max((version for version in deltas if version < below), default=EMPTY)
