import pytest

from penstock.bench.spark_figures import (
    COUNTED,
    KEYS,
    NATIVE,
    PENSTOCK,
    ROWS,
    TYPED,
    Figures,
    goals,
)
from penstock.bench.spark_report import SparkReport


def figures(*, penstock: float = 200.0, alone: float = 100.0, many: float = 200.0) -> Figures:
    found = Figures()
    for repeat in (1.0, 0.5, 2.0):
        for row in ROWS:
            value = many if row == COUNTED[KEYS[-1]] else penstock
            found.add(row, PENSTOCK, value * repeat)
            found.add(row, NATIVE, alone * repeat)
    return found


def verdicts(of: Figures) -> list[bool]:
    return [goal.met for goal in goals(of)]


def test_goals_are_met_at_their_limits() -> None:
    assert verdicts(figures()) == [True, True, True, True, True, False]
    assert verdicts(figures(penstock=99.0, many=49.5)) == [False, False, False, True, True, True]


@pytest.mark.parametrize(("many", "met"), [(100.0, True), (99.0, False)])
def test_many_keys_are_held_against_few(many: float, met: bool) -> None:
    assert verdicts(figures(many=many))[3] is met


def test_a_limit_in_milliseconds_is_not_reached() -> None:
    assert verdicts(figures(penstock=250.0))[4] is False


def test_the_report_has_medians_ratios_goals_and_every_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = SparkReport(figures(), "a command", "a day", {"kernel": "Linux 1.0"}, quick=True)
    report.show()

    shown = " ".join(capsys.readouterr().out.split())
    written = report.markdown()
    assert f"{TYPED.title} 0k (0k-0k) 0k (0k-0k) 2.00x" in shown
    assert "met JSON to six typed columns at least 2.0x Spark alone: 2.00x" in shown
    assert "missed batch of 100 rows, stateless under 100 ms: 200 ms" in shown
    assert f"| {TYPED.title} | 200, 100, 400 | 100, 50, 200 |" in written
    assert "A quick run" in shown
    assert "A quick run" in written
