"""Steps that were not taken: Spark leaves an operator out of a batch that has nothing for it.

That is so in a query of several sources, when those of the operator have nothing new. Then the next
step goes on from the last version there is, and the versions have a gap. A version that the
operator must have had is another matter: it is lost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.streams.state.bucket import EMPTY, BucketState
from penstock.streams.state.durable import BucketFiles
from penstock.streams.state.files import Trailer

_KNOWN = 100  # batches whose offsets Spark keeps: of older ones nobody knows
_MOST_ASKED = 16  # as each takes files to be read, in every bucket of every operator


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

    `may_skip` says whether the operator may have been left out of a batch. It is asked of the first
    few batches after the last version: steps are taken in one batch after the other as a rule, so
    that of those that are lost the first is among them. Before the first version there is, it is
    asked of all batches that anything is known of. Raises StateMissing when the operator cannot
    have been left out, and as BucketState.open does.
    """

    def last(files: BucketFiles) -> Trailer | None:
        found = files.find_trailer(batch - 1) if batch else None
        if found is not None:
            return found
        newest = files.newest(batch - 1)
        skipped = range(max(EMPTY if newest is None else newest, batch - 1 - _KNOWN) + 1, batch)
        for each in skipped if newest is None else skipped[:_MOST_ASKED]:
            if not may_skip(each):
                raise files.missing(each)
        return None if newest is None else files.trailer(newest)

    return BucketState.open_at(
        last, address, warm_folder, operator=operator, bucket=bucket, buckets=buckets, **more
    )
