import pytest

from penstock.runtime.rate import Rate


def test_nothing_read_is_no_rate() -> None:
    assert Rate().at(5.0) == 0.0


def test_one_batch_counts_from_its_beginning() -> None:
    rate = Rate()
    rate.note(102.0, 1_500, began=100.0, before=500)
    assert rate.at(102.0) == pytest.approx(500)
    assert rate.at(105.0) == pytest.approx(200)


def test_only_the_last_seconds_count() -> None:
    rate = Rate()
    for second in range(100):
        rate.note(second + 1.0, (second + 1) * 100, began=float(second), before=second * 100)
    assert rate.at(100.0) == pytest.approx(100)
    assert rate.at(200.0) == 0.0


def test_long_batches_are_seen_whole() -> None:
    rate = Rate()
    for number in range(5):
        start = number * 60.0
        rate.note(start + 60, (number + 1) * 6_000, began=start, before=number * 6_000)
        assert rate.at(start + 60) == pytest.approx(100)
        assert rate.at(start + 90) <= 100


def test_what_is_counted_anew_is_no_rate() -> None:
    rate = Rate()
    rate.note(1.0, 100, began=0.0, before=0)
    rate.note(2.0, 0, began=1.0, before=0)
    assert rate.at(2.0) == 0.0
