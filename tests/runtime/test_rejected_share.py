import pytest

from penstock.runtime.rejected_share import SPAN, RejectedShare


def test_of_few_rows_there_is_no_share() -> None:
    share = RejectedShare(0.0, read=0, rejected=0)
    assert share.at(0.0) is None
    share.note(1.0, 19, 19)
    assert share.at(1.0) is None
    share.note(2.0, 20, 19)
    assert share.at(2.0) == pytest.approx(19 / 20)


def test_what_came_before_the_node_was_started_is_not_of_now() -> None:
    share = RejectedShare(0.0, read=1_000, rejected=900)
    share.note(1.0, 1_100, 901)
    assert share.at(1.0) == pytest.approx(0.01)


def test_only_the_last_minutes_count() -> None:
    share = RejectedShare(0.0, read=0, rejected=0)
    share.note(10.0, 1_000, 500)
    share.note(20.0, 2_000, 500)
    assert share.at(20.0) == pytest.approx(0.25)
    assert share.at(10.0 + SPAN) == 0.0
    assert share.at(20.0 + SPAN) is None
