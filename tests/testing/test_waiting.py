import pytest

from penstock.testing import wait_until


def test_gives_the_first_true_answer() -> None:
    answers = iter([None, "", "here", "too late"])

    assert wait_until(lambda: next(answers)) == "here"


def test_asks_once_more_than_no_time_at_all() -> None:
    assert wait_until(lambda: True, within=0)


def test_says_what_it_waited_for() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0\.01 s for rain"):
        wait_until(lambda: False, within=0.01, what="rain")
