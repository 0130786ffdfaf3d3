import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.display import count, left, plural, right, show, size, span, table
from penstock.clock import duration_ms


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(604_800_000, "7d"), (5_400_000, "1h 30m"), (1_001, "1s 1ms"), (0, "0ms"), (-1, "forever")],
)
def test_spans(milliseconds: int, text: str) -> None:
    assert span(milliseconds) == text


@given(st.integers(0, 10**15))
def test_a_span_can_be_given_back(milliseconds: int) -> None:
    assert duration_ms(span(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (268_435_456, "256 MiB"),
        (5 * 1024**5, "5120 TiB"),
        (-1, "no limit"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


def test_numbers_in_a_pipe_are_plain() -> None:
    assert count(1_234_567) == "1234567"
    assert plural(1, "record") == "1 record"
    assert plural(0, "record") == "0 records"


def test_a_table_in_a_pipe_is_aligned_whole_and_without_colours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = table(left("name"), right("count"), left("note"))
    rows.add_row("x" * 300, "1", "")
    rows.add_row("y", "1000", "last", style="red")
    show(rows)
    assert capsys.readouterr().out.splitlines() == [
        f"{'name':<300}  count  note",
        f"{'x' * 300}      1",
        f"{'y':<300}   1000  last",
    ]
