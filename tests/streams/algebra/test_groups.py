import pyarrow as pa
import pytest

from penstock.streams.algebra.rows import groups as grouping
from penstock.streams.algebra.rows.groups import described, group_rows
from tests.streams.algebra.batches import constant_hashes
from tests.streams.state.samples import SAMPLES


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.parametrize("collide", [False, True])
def test_groups_come_in_the_order_of_their_keys(
    name: str, collide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if collide:
        monkeypatch.setattr(grouping, "hashes_of", constant_hashes)
    kind, values = SAMPLES[name]
    values = [None, *values]
    count = len(values)
    keys = pa.record_batch({"k": pa.array([*values, *values[::-1]], kind)})
    groups = group_rows(keys)
    assert groups.ids.tolist() == [*range(count), *reversed(range(count))]
    assert groups.firsts.tolist() == list(range(count))
    assert (
        groups.keys.column(0).to_pylist().__repr__()
        == pa.array(values, kind).to_pylist().__repr__()
    )


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_pieces_are_all_rows_group_by_group(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_PIECE_GROUPS", piece)
    keys = ["a", "b", "a", "c", "d", "b", "a"]
    rows = pa.record_batch({"k": keys, "v": list(range(len(keys)))})
    found = []
    for span, some, groups in group_rows(rows.select(["k"])).pieces(rows):
        assert groups.keys.column(0).to_pylist() == list("abcd")[span]
        assert [groups.keys.column(0)[i].as_py() for i in groups.ids] == some.column(0).to_pylist()
        assert [some.column(0)[i].as_py() for i in groups.firsts] == list("abcd")[span]
        found += some.column(1).to_pylist()
    assert found == [0, 2, 6, 1, 5, 3, 4]


def test_floats_are_grouped_as_keys_compare() -> None:
    rows = pa.record_batch({"k": [0.0, -0.0, float("nan"), -float("nan")]})
    groups = group_rows(rows)
    assert groups.ids.tolist() == [0, 0, 1, 1]
    assert str(group_rows(rows.slice(1)).keys.column(0)[0].as_py()) == "0.0"
    assert described(groups.keys, 0) == "k = 0.0"
