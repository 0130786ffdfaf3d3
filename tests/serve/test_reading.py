"""What one reader sees, and what values it can be asked for."""

from pathlib import Path
from typing import Any

import pytest

from penstock import Log, clock
from penstock.errors import InvalidInput, StorageFailed
from penstock.serve import reading
from penstock.serve.columns import Column, Form, asked_value, json_value
from penstock.serve.reading import Filter, is_kept, opened
from tests.serve.scene import Scene, Several


def test_a_reader_sees_one_moment_though_the_view_is_built_anew(scene: Scene) -> None:
    scene.commit(0, {"NL": {"orders": 1}})
    scene.project()
    with opened(scene.path) as reader:
        scene.log.delete("revenue")
        again = Scene(scene.log, scene.folder)
        again.commit(0, {"NO": {"orders": 2}})
        again.project()
        kept = reader.find("revenue")
        assert [row[0] for row in reader.page(kept).rows] == ["NL"]
        assert reader.row(kept, b"NL") == ("NL", None, 1)
        assert list(reader.scan(kept)) == [("NL", None, 1)]
        assert list(reader.select("select country from revenue")[1]) == [("NL",)]
    assert scene.rows("select country from revenue") == [("NO",)]


def test_a_query_over_several_views_reads_one_moment(tmp_path: Path) -> None:
    """Also one that begins before the views move on, and ends after that."""
    both = "select (select orders from a), orders from b union all select orders, 7 from a"
    with Log.open(tmp_path) as log:
        several = Several(log, tmp_path, "a b")
        several.commit(0, {view: {"NL": {"orders": 0}} for view in "ab"})
        several.project()
        with opened(several.path) as reader:
            rows = reader.select(both)[1]
            assert next(rows) == (0, 0)
            several.commit(1, {view: {"NL": {"orders": 1}} for view in "ab"})
            several.project()
            assert list(rows) == [(0, 7)]
            assert list(reader.select(both)[1]) == [(0, 0), (0, 7)]
            assert {kept.batch for kept in reader.views()} == {0}
        with opened(several.path) as reader:
            assert list(reader.select(both)[1]) == [(1, 1), (1, 7)]


def test_the_past_is_not_pruned_under_a_reader(scene: Scene) -> None:
    now = clock.now_ms()
    scene.batches.times = {0: now - 9_000, 1: now - 8_000, 2: now}
    scene.commit(0, {"NL": {"orders": 0}, "NO": {"orders": 0}})
    scene.commit(1, {"NL": {"orders": 1}})
    scene.project(versions_ms=60_000)
    with opened(scene.path) as reader:
        kept = reader.find("revenue")
        batch = reader.batch_at(kept, now - 8_500)
        scene.commit(2, {"NO": None})
        scene.project(versions_ms=1_000)
        assert [row[2] for row in reader.page(kept, batch=batch).rows] == [0, 0]


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        ("integer", str(2**63 - 1), 2**63 - 1),
        ("integer", str(-(2**63)), -(2**63)),
        ("integer", str(2**63), None),
        ("integer", str(-(2**63) - 1), None),
        ("bytes", "AP+q", b"\x00\xff\xaa"),
        ("bytes", "00ffa", None),
        ("bytes", "00:f", None),
        ("date", "2026-01-31", "2026-01-31"),
        ("date", "20260131", "2026-01-31"),
        ("date", "garbage", None),
    ],
)
def test_values_that_are_asked_for(form: Form, text: str, value: Any) -> None:
    """None where it is refused; otherwise what is asked for is what is shown."""
    column = Column("c", "its type", form)
    if value is None:
        with pytest.raises(InvalidInput, match="is not a value of column 'c'") as refused:
            asked_value(text, column)
        assert refused.value.hint.startswith("it is of type its type, ")
    else:
        assert asked_value(text, column) == value
        assert asked_value(str(json_value(value, form)), column) == value


def test_a_page_that_takes_too_long(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.commit(0, {f"C{n}": {"orders": n} for n in range(50)})
    scene.project()
    monkeypatch.setattr(reading, "_STEPS", 10)
    with opened(scene.path) as reader:
        kept = reader.find("revenue")
        monkeypatch.setattr(reading, "MAX_SECONDS", -1.0)
        with pytest.raises(InvalidInput, match="not found within") as refused:
            reader.page(kept, [Filter("orders", "eq", "49")])
        assert "its key (country)" in refused.value.hint
        assert len(list(reader.scan(kept))) == 50, "others take their time"


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """SQLite says so when it connects, or when it reads."""
    for path in (tmp_path, Path(__file__)):
        with pytest.raises(StorageFailed, match="cannot be read"):
            is_kept(path)
        with pytest.raises(StorageFailed, match="cannot be read"), opened(path):
            pass
