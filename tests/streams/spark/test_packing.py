"""Rows on their way to buckets, as Spark and as a source send them."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.streams.algebra.joins.lookup import LookupKernel
from penstock.streams.algebra.joins.sides import LEFT, RIGHT, ROW
from penstock.streams.algebra.spreading import Spread
from penstock.streams.spark import packing
from penstock.streams.spark.packing import Packer, unpack

EVENTS = pa.schema({"n": pa.int64(), "c": pa.string()})
TABLE = pa.schema({"id": pa.string(), "rate": pa.int64()})
KERNEL = LookupKernel([("c", "id")], EVENTS, TABLE, broadcast=True)
BUCKETS = 4


def sent(packer: Packer, rows: pa.RecordBatch) -> dict[int, list[pa.RecordBatch]]:
    half = rows.num_rows // 2
    return unpack(packer(iter([rows.slice(0, half), rows.slice(half)])))


@pytest.mark.parametrize("spread", Spread)
def test_a_source_that_packs_by_itself_spreads_in_the_same_way(spread: Spread) -> None:
    rows = pa.record_batch({"n": range(1000), "c": ["hot"] * 1000}, schema=EVENTS)
    packer = Packer(KERNEL.sides[LEFT], BUCKETS, None, spread)

    here, there = sent(packer, rows), sent(Packer.parse(packer.text()), rows)
    assert here == there
    counts = [sum(each.num_rows for each in here[bucket]) for bucket in range(BUCKETS)]
    if spread is Spread.BY_KEY:
        assert sorted(counts) == [0, 0, 0, 1000]
    elif spread is Spread.BY_ROW:
        assert sum(counts) == 1000
        assert min(counts) > 200
    else:
        assert counts == [1000] * BUCKETS


def test_large_payloads_of_every_bucket_lie_in_files_of_its_own(tmp_path: Path) -> None:
    """As each bucket removes what was left for it."""
    rows = pa.record_batch(
        {"id": [f"{n:0100}" for n in range(2000)], "rate": range(2000)}, schema=TABLE
    )
    packer = Packer(KERNEL.sides[RIGHT], BUCKETS, str(tmp_path), Spread.EVERYWHERE)
    (first, second) = list(packer(iter([rows])))
    files = second.column("_file").to_pylist()
    assert len(set(files)) == BUCKETS
    found = unpack(iter([first, second]))
    whole = Counter(KERNEL.sides[RIGHT].partial(rows).column(ROW).to_pylist())
    assert [Counter(part.column(ROW).to_pylist()) for (part,) in found.values()] == [whole] * 4


def test_rows_of_many_bytes_are_packed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MOST", 1_000)
    rows = pa.record_batch(
        {"id": [f"{n:0100}" for n in range(50)], "rate": range(50)}, schema=TABLE
    )
    packer = Packer(KERNEL.sides[RIGHT], 1, None)
    _, *pieces = packer(iter([rows, rows.slice(0, 0)]))
    assert sum(each.num_rows for each in pieces) == 5
    (parts,) = unpack(iter(pieces)).values()
    assert (
        pa.Table.from_batches(parts)
        .column(ROW)
        .combine_chunks()
        .equals(KERNEL.sides[RIGHT].partial(rows).column(ROW))
    )
