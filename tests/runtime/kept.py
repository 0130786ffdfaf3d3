"""A node that has run, as far as its folder tells: state in buckets, offsets and commits."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.runtime.folders import NodeFolder, app_folder
from penstock.runtime.query_folder import CommittedBatch, PlannedBatch
from penstock.streams.state import BucketState, StateSchema, bucket_of
from tests.runtime.statuses import a_node, an_app

OPERATOR = "0-aggregate"
STATE = "1f2e3d-aggregate"  # what its state is called
SCHEMA = StateSchema(pa.schema({"customer": pa.int64()}), pa.schema({"n": pa.int64()}))
CUSTOMERS = 100


def a_node_that_ran(
    data: Path, *, batches: int = 3, planned: int | None = None, buckets: int = 2
) -> NodeFolder:
    """After batch b, customer c has n = b * 1000 + c. `planned` batches are in the offset log."""
    an_app(a_node(), stopped=True).write(app_folder(data, "shop"))
    folder = NodeFolder("shop", "totals", app_folder(data, "shop") / "totals")
    folder.settle(
        {
            "sources": {"orders": "orders"},
            "operators": {OPERATOR: {"kernel": "aggregate", "by": ["customer"]}},
            "key": ["id"],
            "query": "main",
            "states": {OPERATOR: STATE},
        }
    )
    query = folder.query
    query.settle(buckets, {"totals": 1})
    planned = batches if planned is None else planned
    for batch in range(planned):
        versions = {STATE: [batch - 1] * buckets} if batch else {}
        query.write_plan(PlannedBatch(batch, 0, {}, {}, {}, versions))
        run_batch(folder, batch)
        if batch < batches:
            versions = {STATE: [batch] * buckets}
            query.write_commit(CommittedBatch(batch, {}, versions, nodes={"totals": 1}))
    return folder


def run_batch(folder: NodeFolder, batch: int) -> None:
    customers, buckets = np.arange(CUSTOMERS), folder.buckets
    rows = pa.record_batch([customers, customers + batch * 1_000], schema=SCHEMA.columns)
    targets = bucket_of(rows.select(["customer"]), buckets)
    for bucket in range(buckets):
        mine = rows.filter(pa.array(targets == bucket))
        with BucketState.open(
            folder.state,
            folder.path / "warm",
            operator=STATE,
            bucket=bucket,
            buckets=buckets,
            schema=SCHEMA,
            version=batch - 1,
        ) as state:
            state.put(state.find_or_add(mine.select(["customer"])), mine.select(["n"]))
            state.commit(batch)
