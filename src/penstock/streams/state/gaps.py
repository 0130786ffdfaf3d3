"""Steps that were not taken: Spark leaves an operator out of a batch that has nothing for it.

That is so in a query of several sources, when those of the operator have nothing new. Then the next
step goes on from the last version there is. One that the operator must have had is another matter:
it is lost.
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
    may_skip: Callable[[int], bool],
    **more: Any,
) -> BucketState:
    """The state as the last step before this batch left it.

    `may_skip` says whether the operator may have been left out of a batch; it is asked of those
    whose version is not there. Raises StateMissing otherwise, and as BucketState.open does.
    """
    place = {"operator": operator, "bucket": bucket, "buckets": buckets, **more}
    try:
        return BucketState.open(address, warm_folder, version=batch - 1, **place)
    except StateMissing:
        newest = BucketFiles(address, operator, bucket, buckets).newest(batch)
        last = EMPTY if newest is None else newest
        if not all(map(may_skip, range(last + 1, batch))):
            raise
    if last != EMPTY:
        # Empty deltas, so that versions follow each other without a gap.
        for version in range(last + 1, batch):
            with BucketState.open(address, warm_folder, version=version - 1, **place) as state:
                state.commit(version)
        last = batch - 1
    return BucketState.open(address, warm_folder, version=last, **place)
