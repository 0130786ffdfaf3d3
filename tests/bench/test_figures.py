import pytest

from penstock.bench.contenders import KAFKA, KAFKA_FSYNC, PENSTOCK
from penstock.bench.figures import PRODUCE_1K, START_UP, SYNC_P50, Figures, Goal, Row


def figures_of(row: Row, **values: list[float]) -> Figures:
    figures = Figures()
    for contender, measured in values.items():
        for value in measured:
            figures.add(contender, {row: value})
    return figures


def test_medians_ranges_and_ratios() -> None:
    figures = figures_of(PRODUCE_1K, penstock=[300, 500, 100], Kafka=[150, 50, 600])

    assert figures.median(PRODUCE_1K, PENSTOCK) == 300
    assert figures.range(PRODUCE_1K, PENSTOCK) == (100, 500)
    assert figures.ratio(PRODUCE_1K, KAFKA) == 2
    assert figures.values[PRODUCE_1K][KAFKA] == [150, 50, 600]


@pytest.mark.parametrize(
    ("goal", "ours", "met"),
    [
        (Goal(PRODUCE_1K, 1.0, KAFKA, at_least=True), 99.0, False),
        (Goal(PRODUCE_1K, 1.0, KAFKA, at_least=True), 100.0, True),
        (Goal(SYNC_P50, 1.5, KAFKA_FSYNC), 150.0, True),
        (Goal(SYNC_P50, 1.5, KAFKA_FSYNC), 151.0, False),
        (Goal(START_UP, 0.5), 0.49, True),
        (Goal(START_UP, 0.5), 0.5, False),
    ],
)
def test_goals(goal: Goal, ours: float, met: bool) -> None:
    figures = Figures()
    figures.add(PENSTOCK, {goal.row: ours})
    for other in (KAFKA, KAFKA_FSYNC):
        figures.add(other, {goal.row: 100.0})

    assert goal.met(figures) is met


def test_a_goal_says_what_it_asks_for() -> None:
    assert Goal(PRODUCE_1K, 1.0, KAFKA, at_least=True).text == "produce 1 KB at least 1.0x Kafka"
    assert Goal(SYNC_P50, 1.5, KAFKA_FSYNC).text == (
        "sync produce p50 at most 1.5x Kafka with fsync"
    )
    assert Goal(START_UP, 0.5).text == "start-up under 0.5 s"


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [
        ("records/s", 1_234_567.0, "1235k"),
        ("MB/s", 456.78, "457"),
        ("MB", 38.04, "38.0"),
        ("ms", 0.456, "0.46"),
    ],
)
def test_values_are_short(unit: str, value: float, shown: str) -> None:
    assert Row("anything", unit).short(value) == shown
