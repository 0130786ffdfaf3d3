from pathlib import Path

import pytest

from penstock.errors import AppError, InvalidInput, StateMissing
from penstock.runtime.folders import NodeFolder
from penstock.runtime.query_folder import CommittedBatch, last_batch
from penstock.runtime.rescaling import rescale_node
from penstock.streams.state import look_up, state_info
from tests.runtime.kept import CUSTOMERS, STATE, a_node_that_ran, run_batch


def value(folder: NodeFolder, customer: int, buckets: int) -> int:
    found = look_up(folder.state, STATE, buckets, {"customer": customer})
    assert found is not None
    return int(found["n"])


def test_the_state_goes_on_in_other_buckets(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path)
    assert rescale_node(folder, 5) == (2, CUSTOMERS)
    assert folder.buckets == 5
    assert [value(folder, customer, 5) for customer in (0, 7, 99)] == [2_000, 2_007, 2_099]
    assert state_info(folder.state, STATE, 2) == []
    run_batch(folder, 3)
    assert value(folder, 7, 5) == 3_007


def test_a_batch_that_was_not_committed_has_to_end_first(tmp_path: Path) -> None:
    """Parts of it may be written, and would be written again to other places."""
    folder = a_node_that_ran(tmp_path, batches=3, planned=4)
    with pytest.raises(AppError, match="in the middle of batch 3") as refused:
        rescale_node(folder, 3)
    assert "--once" in refused.value.hint
    assert value(folder, 7, 2) == 3_007


def test_an_operator_may_have_been_left_out_of_the_last_batches(tmp_path: Path) -> None:
    """As one is whose inputs have nothing new, while the node has others."""
    folder = a_node_that_ran(tmp_path)
    versions = {STATE: [2, 2]}
    folder.query.write_commit(CommittedBatch(3, {}, versions, nodes={"totals": 1}))
    assert rescale_node(folder, 5) == (2, CUSTOMERS)
    assert value(folder, 7, 5) == 2_007


def test_what_cannot_be_rescaled(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has 2 buckets already"):
        rescale_node(a_node_that_ran(tmp_path), 2)
    never = NodeFolder("shop", "never", tmp_path / "never")
    with pytest.raises(StateMissing, match="keeps nothing"):
        rescale_node(never, 2)
    never.settle({"operators": {}, "key": []})
    with pytest.raises(StateMissing, match="keeps nothing"):
        rescale_node(never, 2)


def test_the_last_batch_is_the_highest_number(tmp_path: Path) -> None:
    assert last_batch(tmp_path / "none") == -1
    for name in ("9", "10", ".11.crc", "12.tmp"):
        (tmp_path / name).touch()
    assert last_batch(tmp_path) == 10
