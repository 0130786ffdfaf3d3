"""A node that has run, as far as its folder tells: state in buckets, offsets and commits."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.runtime.folders import NodeFolder, app_folder
from penstock.streams.state import BucketState, StateSchema, bucket_of
from tests.runtime.statuses import a_node, an_app

OPERATOR = "0-aggregate"
SCHEMA = StateSchema(pa.schema({"customer": pa.int64()}), pa.schema({"n": pa.int64()}))
CUSTOMERS = 100


def a_node_that_ran(
    data: Path, *, batches: int = 3, planned: int | None = None, buckets: int = 2, key: str = "id"
) -> NodeFolder:
    """After batch b, customer c has n = b * 1000 + c. `planned` batches are in the offset log."""
    an_app(a_node(), stopped=True).write(app_folder(data, "shop"))
    folder = NodeFolder("shop", "totals", app_folder(data, "shop") / "totals")
    folder.settle(
        {
            "buckets": buckets,
            "sources": {"orders": "orders"},
            "operators": {OPERATOR: {"kernel": "aggregate", "by": ["customer"]}},
            "key": [key] if key else [],
        }
    )
    checkpoint = Path(folder.checkpoint)
    planned = batches if planned is None else planned
    for name, count in (("commits", batches), ("offsets", planned)):
        (checkpoint / name).mkdir(parents=True)
        for batch in range(count):
            (checkpoint / name / str(batch)).touch()
            (checkpoint / name / f".{batch}.crc").touch()
    for batch in range(planned):
        run_batch(folder, batch)
    return folder


def run_batch(folder: NodeFolder, batch: int) -> None:
    facts = folder.facts()
    assert facts is not None
    customers = np.arange(CUSTOMERS)
    rows = pa.record_batch([customers, customers + batch * 1_000], schema=SCHEMA.columns)
    targets = bucket_of(rows.select(["customer"]), facts["buckets"])
    for bucket in range(facts["buckets"]):
        mine = rows.filter(pa.array(targets == bucket))
        with BucketState.open(
            folder.state,
            folder.path / "warm",
            operator=OPERATOR,
            bucket=bucket,
            buckets=facts["buckets"],
            schema=SCHEMA,
            version=batch - 1,
        ) as state:
            state.put(state.find_or_add(mine.select(["customer"])), mine.select(["n"]))
            state.commit(batch)
