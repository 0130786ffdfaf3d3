"""The state of a node that does not run, spread over another number of buckets."""

from penstock.errors import AppError, InvalidInput, StateMissing
from penstock.runtime.folders import NodeFolder
from penstock.streams.spark.place import forget_warm
from penstock.streams.state import EMPTY, forget, rescale, state_info


def rescale_node(folder: NodeFolder, buckets: int) -> tuple[int, int]:
    """Returns the number of buckets before, and of rows. The caller holds the app's lock.

    What is kept is the state after the last batch that Spark has committed: one that was planned
    and not committed is run again on it. Cut short, it leaves the node as it was.
    """
    facts = folder.facts()
    if facts is None or not facts["operators"]:
        raise StateMissing(
            f"{folder.node} keeps nothing that could be spread",
            hint="aggregations and tables keep state, once they have run a batch",
        )
    before = int(facts["buckets"])
    if before == buckets:
        raise InvalidInput(
            f"{folder.node} has {buckets} buckets already", hint="give another number"
        )
    committed = folder.committed
    if folder.planned > committed and not facts["key"]:
        # Parts of it may be in the topic, and rows without a key would find other partitions.
        raise AppError(
            f"{folder.node} was stopped in the middle of batch {committed + 1}, and writes rows "
            "without a key, which cannot be told apart when they are written again",
            hint="run the app once more, so that it ends the batch: penstock run app.py --once",
        )
    rows = 0
    for operator in facts["operators"] if committed != EMPTY else ():
        kept = [each.versions for each in state_info(folder.state, operator, before)]
        if kept:  # of a table that is only read by its versions there is none
            rows += rescale(
                folder.state,
                operator=operator,
                from_buckets=before,
                to_buckets=buckets,
                # Spark leaves an operator out of a batch that has nothing for it.
                version=min(committed, *(versions[-1] for versions in kept)),
            )
    folder.rescaled(buckets)
    for operator in facts["operators"]:
        forget(folder.state, operator, before)
    forget_warm(folder.checkpoint)
    return before, rows
