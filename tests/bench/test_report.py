import pytest

from penstock.bench.contenders import CONTENDERS, KAFKA, PENSTOCK
from penstock.bench.figures import GOALS, PRODUCE_1K, ROWS, Figures
from penstock.bench.report import Report


@pytest.fixture
def report() -> Report:
    figures = Figures()
    for value in (60.0, 30.0, 90.0):
        for contender in CONTENDERS:
            twice = 2 if contender == PENSTOCK else 1
            figures.add(contender, dict.fromkeys(ROWS, value * twice))
    return Report(figures, "a command", "a day", {"kernel": "Linux 1.0"}, quick=False)


def test_the_terminal_shows_medians_ranges_ratios_and_goals(
    report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    report.show()

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    values = "120 (60.0-180) 60.0 (30.0-90.0) 60.0 (30.0-90.0) 2.00x 2.00x"
    for row in ROWS:
        if row.unit != "records/s":  # those are in thousands
            assert f"{row.title} {values}" in lines
    assert "met produce 1 KB at least 1.0x Kafka: 2.00x" in lines
    assert "missed start-up under 0.5 s: 120 s" in lines
    assert "A quick run" not in str(lines)


def test_the_file_has_every_row_goal_and_value(report: Report) -> None:
    lines = report.markdown().splitlines()

    for row in ROWS:
        raw = f"| {row.title} | 120, 60, 180 | 60, 30, 90 | 60, 30, 90 |"
        assert [line for line in lines if line.startswith(f"| {row.title} |")][1:] == [raw]
    for goal in GOALS:
        assert any(line.startswith(f"| {goal.text} |") for line in lines)
    assert "| kernel | Linux 1.0 |" in lines
    assert "a day, by `a command`." in lines


def test_large_values_keep_their_digits(report: Report) -> None:
    report.figures.values[PRODUCE_1K][KAFKA] = [1_234_567.8, 0.123456]

    assert "| 1234568, 0.1235 |" in report.markdown()


def test_a_quick_run_says_that_it_means_nothing(
    report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = Report(report.figures, "", "", {}, quick=True)

    quick.show()

    assert "A quick run" in capsys.readouterr().out
    assert "A quick run" in quick.markdown()
