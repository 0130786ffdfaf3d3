from pathlib import Path

import pytest

from penstock.errors import AppError, InvalidInput, StateMissing
from penstock.runtime.folders import NodeFolder, last_batch
from penstock.runtime.rescaling import rescale_node
from penstock.streams.state import look_up, state_info
from tests.runtime.kept import CUSTOMERS, OPERATOR, a_node_that_ran, run_batch


def value(folder: NodeFolder, customer: int, buckets: int) -> int:
    found = look_up(folder.state, OPERATOR, buckets, {"customer": customer})
    assert found is not None
    return int(found["n"])


def test_the_state_goes_on_in_other_buckets(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path)
    assert rescale_node(folder, 5) == (2, CUSTOMERS)
    facts = folder.facts()
    assert facts is not None
    assert facts["buckets"] == 5
    assert [value(folder, customer, 5) for customer in (0, 7, 99)] == [2_000, 2_007, 2_099]
    assert state_info(folder.state, OPERATOR, 2) == []
    run_batch(folder, 3)
    assert value(folder, 7, 5) == 3_007


def test_a_batch_that_was_not_committed_is_run_again(tmp_path: Path) -> None:
    """Its state may be there already, in all buckets or in some: what counts is the one before."""
    folder = a_node_that_ran(tmp_path, batches=3, planned=4)
    assert value(folder, 7, 2) == 3_007
    rescale_node(folder, 3)
    assert value(folder, 7, 3) == 2_007
    run_batch(folder, 3)
    assert value(folder, 7, 3) == 3_007


def test_rows_without_a_key_could_be_written_twice(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path, batches=3, planned=4, key="")
    with pytest.raises(AppError, match="in the middle of batch 3") as refused:
        rescale_node(folder, 3)
    assert "--once" in refused.value.hint
    assert value(folder, 7, 2) == 3_007
    whole = a_node_that_ran(tmp_path / "whole", key="")
    assert rescale_node(whole, 3) == (2, CUSTOMERS)


def test_before_the_first_commit_there_is_nothing_to_move(tmp_path: Path) -> None:
    folder = a_node_that_ran(tmp_path, batches=0, planned=1)
    assert rescale_node(folder, 3) == (2, 0)
    run_batch(folder, 0)
    assert value(folder, 7, 3) == 7


def test_an_operator_may_have_been_left_out_of_the_last_batches(tmp_path: Path) -> None:
    """As one is whose inputs have nothing new, while the node has others."""
    folder = a_node_that_ran(tmp_path)
    for name in ("offsets", "commits"):
        (Path(folder.checkpoint) / name / "3").touch()
    assert rescale_node(folder, 5) == (2, CUSTOMERS)
    assert value(folder, 7, 5) == 2_007


def test_an_operator_that_never_ran_has_nothing_to_move(tmp_path: Path) -> None:
    folder = NodeFolder("shop", "enriched", tmp_path / "enriched")
    folder.settle({"buckets": 1, "operators": {"0-upsert": {}}, "key": []})
    for name in ("offsets", "commits"):
        (Path(folder.checkpoint) / name).mkdir(parents=True)
        (Path(folder.checkpoint) / name / "0").touch()
    assert rescale_node(folder, 2) == (1, 0)


def test_what_cannot_be_rescaled(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has 2 buckets already"):
        rescale_node(a_node_that_ran(tmp_path), 2)
    never = NodeFolder("shop", "never", tmp_path / "never")
    with pytest.raises(StateMissing, match="keeps nothing"):
        rescale_node(never, 2)
    never.settle({"buckets": 1, "operators": {}, "key": []})
    with pytest.raises(StateMissing, match="keeps nothing"):
        rescale_node(never, 2)


def test_the_last_batch_is_the_highest_number(tmp_path: Path) -> None:
    assert last_batch(tmp_path / "none") == -1
    for name in ("9", "10", ".11.crc", "12.tmp"):
        (tmp_path / name).touch()
    assert last_batch(tmp_path) == 10
