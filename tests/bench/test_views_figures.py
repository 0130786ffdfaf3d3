import pytest

from penstock.bench.flink import FLINK
from penstock.bench.spark_figures import NATIVE, PENSTOCK, Figures
from penstock.bench.views.figures import CONTENDERS, Changed, goals
from penstock.bench.views.queries import ALL, Q3, Q9
from penstock.bench.views.report import ViewsReport

FLAT: Changed = {("a", 10): [5, 4, 6], ("a", 100): [9, 10, 30], ("b", 10): [3], ("b", 100): [3]}


def figures(*, penstock: float = 200_000.0) -> Figures:
    found = Figures()
    for repeat in (1.0, 0.5, 2.0):
        for asked in ALL:
            for who in CONTENDERS:
                if who != NATIVE or asked.spark:
                    value = penstock if who == PENSTOCK else 100_000.0
                    found.add(asked.row, who, value * repeat)
    return found


@pytest.mark.parametrize(("penstock", "met"), [(200_000.0, True), (199_000.0, False)])
def test_goals_are_met_at_their_limits(penstock: float, met: bool) -> None:
    found = goals(figures(penstock=penstock), FLAT)

    assert {goal.met for goal in found if FLINK in goal.text} == {met}
    assert len(found) == len(ALL) + 2


@pytest.mark.parametrize(("slowest", "met"), [(10, True), (11, False)])
def test_a_change_may_cost_twice_as_much_at_the_most(slowest: int, met: bool) -> None:
    found = goals(figures(), {("a", 10): [5], ("a", 100): [7], ("a", 1_000): [slowest]})

    assert [goal.met for goal in found if "one changed row" in goal.text] == [met]


def test_the_report_has_medians_ratios_goals_and_every_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = ViewsReport(figures(), "a command", "a day", {"kernel": "Linux 1.0"}, True, FLAT)
    report.show()

    shown = " ".join(capsys.readouterr().out.split())
    written = report.markdown()
    ours, theirs = "200k (100k-400k)", "100k (50k-200k)"
    assert f"{Q3.row.title} {ours} {theirs} {theirs} 2.00x 2.00x" in shown
    assert f"{Q9.row.title} {ours} {theirs} 2.00x" in shown
    assert f"met {Q9.row.what} at least 2.0x {FLINK}: 2.00x" in shown
    assert f"| {Q9.row.title} | 200000, 100000, 400000 |  | 100000, 50000, 200000 |" in written
    assert "| 10 | 5 (4-6) | 3 (3-3) |" in written
    assert "| 100 | 10 (9-30) | 3 (3-3) |" in written
