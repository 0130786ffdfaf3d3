"""Whether what was appended has arrived, over one node, several, and two ways at once."""

from pathlib import Path

import pytest

from penstock import Position
from penstock.errors import InvalidInput, UnknownName
from penstock.runtime.reach import Hop, Reach, topics_above, wanted_of
from tests.runtime.checkpoints import a_folder, note

Ends = dict[str, dict[int, int]]


@pytest.fixture
def chain(tmp_path: Path) -> list[Hop]:
    """orders -> large -> revenue, and revenue reads orders as well."""
    large = a_folder(tmp_path, "large", orders="orders")
    revenue = a_folder(tmp_path, "revenue", large="large", orders="orders")
    return [
        Hop("revenue", revenue, ("large", "orders"), "revenue"),
        Hop("large", large, ("orders",), "large"),
    ]


def test_over_two_nodes(chain: list[Hop]) -> None:
    revenue, large = chain
    ends: Ends = {"large": {0: 0}, "revenue": {0: 0}}
    reach = Reach(chain, {"orders": {0: 5}}, "revenue", ends.__getitem__)
    assert str(reach.short()) == "node 'large' has read orders/0 up to 0, 5 records short"

    note(large.folder, 0, {"orders": {0: (0, 5)}}, commits=False)
    assert "orders/0 up to 0" in str(reach.short()), "a batch counts when it is committed"

    ends["large"] = {0: 3}
    note(large.folder, 0, {"orders": {0: (0, 5)}})
    note(revenue.folder, 0, {"orders": {0: (0, 4)}, "large": {0: (0, 3)}})
    assert str(reach.short()) == "node 'revenue' has read orders/0 up to 4, 1 record short"
    assert reach.goal() is None

    # What the node above writes from now on is of later records.
    ends["large"], ends["revenue"] = {0: 100}, {0: 7}
    note(revenue.folder, 1, {"orders": {0: (4, 5)}, "large": {0: (3, 3)}})
    assert reach.short() is None
    assert reach.goal() == {0: 7}

    assert reach.short_of_table("revenue", {0: 7}) is None
    behind = reach.short_of_table("revenue", {0: 6})
    assert "the table of view 'revenue' has read revenue/0 up to 6, 1 record" in str(behind)
    assert reach.short_of_table("revenue-v0", {0: 9}) is not None, "another topic's offsets"


def test_a_position_of_the_views_own_topic(chain: list[Hop]) -> None:
    reach = Reach(chain, {"revenue": {1: 3}}, "revenue", lambda topic: {})
    assert reach.goal() == {1: 3}


def test_nodes_that_do_not_matter_are_not_waited_for(chain: list[Hop]) -> None:
    reach = Reach(chain, {"large": {0: 1}}, "large", lambda topic: {})
    assert reach.goal() == {0: 1}
    assert topics_above(chain, "large") == ["large", "orders"]
    assert topics_above(chain, "revenue") == ["large", "orders", "revenue"]
    with pytest.raises(UnknownName):
        topics_above(chain, "income")


def test_a_topic_that_is_read_twice_is_read_as_far_as_by_the_slower(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "both", orders="orders", rejected_orders="orders")
    note(folder, 0, {"orders": {0: (2, 5)}, "rejected_orders": {0: (1, 4)}})
    assert folder.read_by(0) == {"orders": {0: (1, 4)}}
    assert folder.read_by(1) == {}
    assert folder.committed_ms(0)
    assert folder.committed_ms(1) is None


def test_what_is_wanted() -> None:
    ends = {"orders": {0: 5, 1: 9}}
    positions = [Position("orders", 0, 1), Position("orders", 0, 4), Position("orders", 1, 0)]
    assert wanted_of(positions, ends.__getitem__) == {"orders": {0: 5, 1: 1}}
    with pytest.raises(InvalidInput, match="orders/0@5 is not in the log"):
        wanted_of([Position("orders", 0, 5)], ends.__getitem__)
