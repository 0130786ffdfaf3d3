"""The state of a query that does not run, spread over another number of buckets."""

from dataclasses import replace

from penstock.errors import AppError, InvalidInput, StateMissing
from penstock.runtime.folders import NodeFolder
from penstock.streams.spark.place import forget_warm
from penstock.streams.state import forget, rescale, restore


def rescale_node(folder: NodeFolder, buckets: int) -> tuple[int, int]:
    """Rescales the query that a node runs in: returns the number of buckets before, and of rows.
    The caller holds the app's lock.

    What is kept is the state after the last batch that was committed. Cut short, it leaves the
    query as it was.
    """
    restore(folder.state)
    query = folder.query
    before = query.buckets
    committed = query.commit(query.committed)
    if before is None or committed is None or not committed.versions:
        raise StateMissing(
            f"{folder.node} keeps nothing that could be spread",
            hint="aggregations and tables keep state, once they have run a batch",
        )
    if before == buckets:
        raise InvalidInput(
            f"{folder.node} has {buckets} buckets already", hint="give another number"
        )
    if query.planned > committed.batch:
        # Parts of it may be in topics, and rows without a key would find other partitions.
        raise AppError(
            f"{folder.node} was stopped in the middle of batch {query.planned}",
            hint="run the app once more, so that it ends the batch: penstock run app.py --once",
        )
    rows = 0
    versions = {}
    for operator, kept in committed.versions.items():
        rows += rescale(
            folder.state,
            operator=operator,
            from_buckets=before,
            to_buckets=buckets,
            version=kept,
        )
        versions[operator] = [max(kept)] * buckets
    counts = {
        operator: [[sum(column) for column in zip(*some, strict=True)], *_nothing(buckets - 1)]
        for operator, some in committed.counts.items()
    }
    query.rescale(replace(committed, versions=versions, counts=counts), buckets)
    for operator in committed.versions:
        forget(folder.state, operator, before)
    forget_warm(folder.state)
    return before, rows


def _nothing(count: int) -> list[list[int]]:
    return [[0, 0, 0] for _ in range(count)]
