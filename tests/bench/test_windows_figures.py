import pytest

from penstock.bench.flink import FLINK
from penstock.bench.spark_figures import NATIVE, PENSTOCK, Figures
from penstock.bench.windows.figures import CONTENDERS, goals
from penstock.bench.windows.queries import ALL, ROLLING, TUMBLING
from penstock.bench.windows.report import WindowsReport
from penstock.bench.windows.state import Kept, hopping, sessions


def figures(*, penstock: float = 200_000.0, others: float = 100_000.0) -> Figures:
    found = Figures()
    for repeat in (1.0, 0.5, 2.0):
        for asked in ALL:
            for who in CONTENDERS:
                if who != NATIVE or asked.spark:
                    value = penstock if who.startswith(PENSTOCK) else others
                    found.add(asked.row, who, value * repeat)
    return found


@pytest.mark.parametrize(
    ("penstock", "beside_flink", "beside_spark"),
    [(200.0, True, True), (199.0, False, True), (100.0, False, True), (99.0, False, False)],
)
def test_goals_are_met_at_their_limits(
    penstock: float, beside_flink: bool, beside_spark: bool
) -> None:
    for goal in goals(figures(penstock=penstock, others=100.0)):
        assert goal.met == (beside_flink if goal.text.endswith(f"2.0x {FLINK}") else beside_spark)


def test_there_is_a_goal_for_everybody_else_who_can() -> None:
    texts = [goal.text for goal in goals(figures())]

    assert len(texts) == 2 * len(ALL) - 1
    assert f"{TUMBLING.row.what} at least 1.0x {NATIVE}" in texts
    assert not any(ROLLING.row.what in text and NATIVE in text for text in texts)


def test_the_report_has_medians_ratios_goals_and_every_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = Kept(1_000, warm=120.4, durable=88.0)
    machine = {"kernel": "Linux 1.0"}
    report = WindowsReport(figures(), "a command", "a day", machine, True, kept, {1: 5, 50: 5})
    report.show()

    shown = " ".join(capsys.readouterr().out.split())
    written = report.markdown()
    ours, theirs = "200k (100k-400k)", "100k (50k-200k)"
    assert f"{TUMBLING.row.title} {ours} {ours} {theirs} {theirs} 2.00x 2.00x" in shown
    assert f"{ROLLING.row.title} {ours} {ours} {theirs} 2.00x" in shown
    assert f"met {TUMBLING.row.what} at least 2.0x {FLINK}: 2.00x" in shown
    raw = "200000, 100000, 400000"
    assert f"| {ROLLING.row.title} | {raw} | {raw} |  | 100000, 50000, 200000 |" in written
    assert "A quick run" in shown
    assert "A quick run" in written
    assert "1,000 keys with an open session each, a count and a mean: 120 bytes a key" in written
    assert "| 50 | 5 |" in written


def test_what_is_kept_does_not_grow_with_the_overlap() -> None:
    assert {hopping(overlap, 1_000) for overlap in (1, 10, 50)} == {1_000}


def test_sessions_take_a_bounded_number_of_bytes() -> None:
    kept = sessions(50_000)
    assert 50 < kept.durable < 200
    assert 50 < kept.warm < 1_000
