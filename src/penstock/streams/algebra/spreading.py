"""Which buckets the packed rows of an input go to."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa

from penstock.streams.algebra.changes import WEIGHT
from penstock.streams.state import bucket_of


class Spread(StrEnum):
    """Rows of one key together; or each by all that it is, so that no key is too much for a bucket;
    or a copy of each in every bucket, where rows that were spread in any way find it.

    It depends on nothing but the row, so that a batch which is run again gives each bucket the
    same, and what takes a row back goes where the row went.
    """

    BY_KEY = "by key"
    BY_ROW = "by row"
    EVERYWHERE = "everywhere"

    def parts(
        self, rows: pa.RecordBatch, keys: Sequence[str], buckets: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each bucket that gets any, in their order."""
        if rows.num_rows == 0:
            return
        if buckets == 1 or self is Spread.EVERYWHERE:
            yield from ((bucket, rows) for bucket in range(buckets))
            return
        names = keys if self is Spread.BY_KEY else [n for n in rows.schema.names if n != WEIGHT]
        numbers = bucket_of(rows.select(list(names)), buckets)
        # Stable, so that rows of one key stay in their order.
        rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
        ends = np.cumsum(np.bincount(numbers, minlength=buckets)).tolist()
        for bucket, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if start < end:
                yield bucket, rows.slice(start, end - start)


BOTH_BY_KEY = (Spread.BY_KEY, Spread.BY_KEY)
BROADCAST = (Spread.BY_ROW, Spread.EVERYWHERE)  # events, and the table that they ask
