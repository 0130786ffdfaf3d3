import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import InvalidInput, StateError
from penstock.streams.algebra.aggregates.functions import count
from penstock.streams.algebra.keyed.aggregate import AggregateKernel
from penstock.streams.spark import place
from penstock.streams.spark.place import (
    QueryPlace,
    building,
    claim_warm,
    forget_warm,
    place_for,
    warm_claimed,
    warm_folder,
)

SCHEMA = pa.schema({"key": pa.int64(), "other": pa.string()})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place._warm_home.cache_clear()
    monkeypatch.setenv("PENSTOCK_WARM", str(tmp_path))
    return tmp_path


def test_operators_are_named_in_their_order() -> None:
    found = QueryPlace("checkpoint", 2, one_host=True)
    kernel = AggregateKernel("key", {"n": count()}, SCHEMA)

    assert [found.add_operator(kernel), found.add_operator(kernel)] == [
        "0-aggregate",
        "1-aggregate",
    ]
    assert found.operators["0-aggregate"]["state"] == {"key": "int64", "n": "int64"}


def test_columns_that_are_not_read_may_come_and_go() -> None:
    wide, narrow = QueryPlace("checkpoint", 2, one_host=True), QueryPlace("c", 2, one_host=True)
    wide.add_operator(AggregateKernel("key", {"n": count()}, SCHEMA))
    narrow.add_operator(AggregateKernel("key", {"n": count()}, pa.schema({"key": pa.int64()})))

    assert wide.operators == narrow.operators


def test_a_node_that_is_built_is_the_place_of_its_operators() -> None:
    with building(QueryPlace("node", 3, one_host=False)) as found:
        assert place_for(None, 1, one_host=True) is found

    assert place_for("query", 1, one_host=True).checkpoint == "query"
    with pytest.raises(InvalidInput, match="a place for its state"):
        place_for(None, 1, one_host=True)


def test_outside_an_app_operators_are_told_apart_by_what_they_are() -> None:
    by_key = AggregateKernel("key", {"n": count()}, SCHEMA)
    by_other = AggregateKernel("other", {"n": count()}, SCHEMA)
    names = {place_for("query", 1, one_host=True).add_operator(it) for it in (by_key, by_other)}

    assert len(names) == 2
    assert place_for("query", 1, one_host=True).add_operator(by_key) in names


def test_what_is_warm_goes_when_its_checkpoint_is_gone(tmp_path: Path) -> None:
    here, gone = (tmp_path / name / "checkpoint" for name in ("here", "gone"))
    for each in (here, gone):
        each.parent.mkdir()
        claim_warm(str(each))
    gone.parent.rmdir()
    claim_warm(str(here))
    claim_warm("s3://bucket/checkpoint")
    assert warm_folder(str(here)).is_dir()
    assert not warm_folder(str(gone)).exists()


def test_what_is_warm_goes_at_the_end(tmp_path: Path) -> None:
    mine = str(tmp_path / "checkpoint")
    with warm_claimed(mine):
        assert warm_folder(mine).is_dir()
    assert not warm_folder(mine).exists()


def test_what_a_process_left_that_was_killed_goes_at_the_next_start(tmp_path: Path) -> None:
    ended = subprocess.Popen(("true",))
    ended.wait()
    left, mine, running = (str(tmp_path / name) for name in ("left", "mine", "running"))
    for each, process in ((left, ended.pid), (mine, ended.pid), (running, os.getpid())):
        claim_warm(each)
        (warm_folder(each) / "checkpoint").write_text(f"{each}\n{process}")
    with warm_claimed(mine):
        assert not warm_folder(left).exists()
        assert warm_folder(running).is_dir()
        assert warm_folder(mine).is_dir()  # which it goes on with


def test_a_folder_that_others_can_read_is_refused(home: Path) -> None:
    warm_folder("checkpoint").parent.chmod(0o755)
    place._warm_home.cache_clear()

    with pytest.raises(StateError, match="this user alone"):
        warm_folder("checkpoint")


def test_what_is_warm_is_nobody_elses_and_can_be_forgotten(home: Path) -> None:
    folder = warm_folder("checkpoint")
    folder.mkdir()
    (folder / "arena").touch()

    assert folder.parent.parent == home
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert warm_folder("another") != folder

    forget_warm("checkpoint")
    assert not folder.exists()
