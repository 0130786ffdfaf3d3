from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ForeignCheckpoint, NodeChanged
from penstock.runtime.folders import (
    NodeFolder,
    app_folder,
    apps_in,
    begin_generations,
    finish_generations,
)
from penstock.streams.algebra.changes import TIME_TYPE
from penstock.streams.algebra.joins.lookup import LookupKernel
from penstock.streams.algebra.joins.temporal import TemporalKernel
from penstock.streams.spark.place import QueryPlace

FACTS = {
    "sources": {"orders": "orders"},
    "operators": {"0-aggregate": {"by": ["customer"], "state": {"total": "double"}}},
    "key": ["customer"],
}


@pytest.fixture
def folder(tmp_path: Path) -> NodeFolder:
    return NodeFolder("shop", "totals", app_folder(tmp_path, "shop") / "totals")


def test_what_is_settled_is_found_again(folder: NodeFolder) -> None:
    assert folder.facts() is None
    folder.settle(FACTS)
    assert folder.facts() == {"app": "shop", "node": "totals", **FACTS}
    folder.settle(FACTS)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"key": ["id"]}, 'key was ["customer"] and is ["id"]'),
        ({"sources": {"orders": "orders-2"}}, 'sources.orders was "orders" and is "orders-2"'),
        (
            {"operators": {"0-aggregate": {"by": ["customer"], "state": {"total": "int64"}}}},
            'operators.0-aggregate.state.total was "double" and is "int64"',
        ),
        ({"operators": {}}, "operators.0-aggregate is gone"),
        ({"sources": {"orders": "orders", "more": "more"}}, "sources.more is new"),
    ],
)
def test_what_does_not_fit_is_refused(
    folder: NodeFolder, changed: dict[str, object], told: str
) -> None:
    folder.settle(FACTS)
    with pytest.raises(NodeChanged) as refused:
        folder.settle(FACTS | changed)
    assert told in refused.value.message
    assert "--rebuild totals" in refused.value.hint
    assert "--reset totals" in refused.value.hint
    assert folder.facts() == {"app": "shop", "node": "totals", **FACTS}


@pytest.mark.parametrize("kernel", [LookupKernel, TemporalKernel])
def test_a_table_that_is_broadcast_from_now_on_is_refused(folder: NodeFolder, kernel: Any) -> None:
    """Its rows, and events that wait for them, are not in the buckets where they would be."""
    rows = pa.schema({"id": pa.int64(), "at": TIME_TYPE})
    table = pa.schema({"id": pa.int64(), "name": pa.string(), "since": TIME_TYPE})
    times = {"event_time": "at"}
    if kernel is TemporalKernel:
        times["table_time"] = "since"

    def facts(*, broadcast: bool) -> dict[str, object]:
        place = QueryPlace("", 4, one_host=True)
        place.add_operator(kernel([("id", "id")], rows, table, **times, broadcast=broadcast))
        return FACTS | {"operators": place.operators}

    folder.settle(facts(broadcast=False))
    folder.settle(facts(broadcast=False))
    with pytest.raises(NodeChanged, match="broadcast was false and is true"):
        folder.settle(facts(broadcast=True))


def test_a_checkpoint_of_a_version_before_is_refused(folder: NodeFolder) -> None:
    (folder.home / "checkpoint").mkdir(parents=True)
    with pytest.raises(ForeignCheckpoint, match="ran every node by itself") as refused:
        folder.settle(FACTS)
    assert "--reset totals" in refused.value.hint
    assert folder.facts() is None


def test_the_folder_of_another_app_is_refused(folder: NodeFolder) -> None:
    NodeFolder("stock", "totals", folder.path).settle(FACTS)
    with pytest.raises(ForeignCheckpoint, match="belongs to node 'totals' of app 'stock'"):
        folder.settle(FACTS)


def test_generations_lie_side_by_side(folder: NodeFolder) -> None:
    folder.settle(FACTS)
    assert (folder.generation, folder.versioned("totals")) == (1, "totals")
    first = folder.home
    folder.begin(folder.generation + 1)
    assert (folder.generation, folder.versioned("totals")) == (2, "totals-v2")
    assert folder.facts() is None
    folder.settle(FACTS | {"key": []})
    folder.clear()
    assert (folder.generation, folder.facts()) == (2, None)
    assert first.is_dir()


def test_what_may_change_is_noted(folder: NodeFolder) -> None:
    folder.settle(FACTS)
    folder.note(query="main", states={"0-aggregate": "1f-aggregate"})
    assert (folder.query.name, folder.operators) == ("main", {"0-aggregate": "1f-aggregate"})
    folder.settle(FACTS)


def test_apps_of_a_folder(tmp_path: Path, folder: NodeFolder) -> None:
    assert apps_in(tmp_path) == []
    folder.settle(FACTS)
    (tmp_path / "apps" / "a-file").touch()
    NodeFolder("bank", "x", app_folder(tmp_path, "bank") / "x").settle(FACTS)
    assert apps_in(tmp_path) == ["bank", "shop"]


def test_generations_begin_together_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two nodes of which one reads the other, none goes on with what the other is no more."""
    home = app_folder(tmp_path, "shop")
    home.mkdir(parents=True)
    totals, sizes = (NodeFolder("shop", name, home / name) for name in ("totals", "sizes"))
    begin = NodeFolder.begin

    def killed(folder: NodeFolder, generation: int) -> None:
        if folder.node == "sizes":
            raise KeyboardInterrupt
        begin(folder, generation)

    with monkeypatch.context() as patched:
        patched.setattr(NodeFolder, "begin", killed)
        with pytest.raises(KeyboardInterrupt):
            begin_generations(home, "shop", {"totals": 2, "sizes": 5})
    assert (totals.generation, sizes.generation) == (2, 1)
    finish_generations(home, "shop")
    assert (totals.generation, sizes.generation) == (2, 5)
    totals.begin(3)
    finish_generations(home, "shop")
    assert totals.generation == 3, "it was done"


def test_what_would_be_refused_is_told_without_a_change(folder: NodeFolder) -> None:
    folder.settle(FACTS)
    assert folder.changes(FACTS | {"key": ["id"]}) == ['key was ["customer"] and is ["id"]']
    assert folder.changes(FACTS) == []
    assert not folder.is_whole
    folder.note(whole=True)
    assert folder.is_whole
    folder.settle(FACTS)
