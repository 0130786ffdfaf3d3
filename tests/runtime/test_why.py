import pytest

from penstock.runtime.status import Life, NodeStatus
from penstock.runtime.why import explain, moment, roughly
from penstock.streams.source.event_time import TIMES
from tests.runtime.statuses import MINUTE, NOW, TEN, a_node, an_app, an_input

CLOCK = "Its clock is at 2026-01-31T10:00:00Z."
SECOND = 1_000_000


def said(node: NodeStatus, *, life: Life = "running", **app: object) -> list[str]:
    return explain(an_app(node, **app), node, life=life, now=NOW)


def test_waits() -> None:
    assert said(a_node()) == [
        (
            "totals waits for new records in orders: all 1,000 rows there are have been read, the "
            "last of them 4m ago."
        ),
        CLOCK,
    ]


def test_has_not_begun() -> None:
    fresh = NodeStatus("totals")
    assert said(fresh) == ["totals has not begun: Spark takes some seconds to start."]
    assert said(fresh, life="stopped")[1:] == ["totals was not started."]


def test_lags() -> None:
    behind = an_input(end={"0": 12_500, "1": 500})
    assert said(a_node(behind, state="running")) == [
        "totals runs: 1,500 rows/s; its last batch, number 41, took 850ms.",
        (
            "It is 12,000 records behind in orders: at 1,500 rows/s it needs 8s for them, if no "
            "more come meanwhile."
        ),
        CLOCK,
    ]
    assert said(a_node(behind, state="running", rows_per_second=0.0))[1] == (
        "It is 12,000 records behind in orders."
    )


def test_is_held_back_by_a_partition() -> None:
    at = {"0": TEN, "1": TEN + 250 * SECOND, "2": TEN + 300 * SECOND}
    assert said(a_node(an_input(clocks=at)))[1:] == [
        CLOCK,
        (
            "Partition 0 of orders is at 2026-01-31T10:00:00Z, 4m 10s behind the others. "
            "idle_after is off: a partition that is silent is waited for without end."
        ),
    ]
    patient = an_input(clocks=at, idle_after=30 * SECOND)
    assert said(a_node(patient))[2].endswith(
        "behind the others. After 30s of silence it is waited for no longer."
    )


@pytest.mark.parametrize(("apart", "told"), [(9_999_999, False), (10 * SECOND, True)])
def test_partitions_that_are_close_hold_nobody_back(apart: int, told: bool) -> None:
    sentences = said(a_node(an_input(clocks={"0": TEN, "1": TEN + apart})))
    assert any("Partition 0" in sentence for sentence in sentences) == told


@pytest.mark.parametrize(
    ("clocks", "expected"),
    [
        ({"0": None, "1": None}, "No event has come in orders."),
        (
            {"0": TEN, "1": None},
            (
                "No event has come in partition 1 of orders, which the others wait for. idle_after "
                "is off: a partition that is silent is waited for without end."
            ),
        ),
        (
            {"0": None, "1": TEN, "2": None},
            (
                "No event has come in partitions 0, 2 of orders, which the others wait for. "
                "idle_after is off: a partition that is silent is waited for without end."
            ),
        ),
    ],
)
def test_has_no_clock(clocks: dict[str, int | None], expected: str) -> None:
    assert said(a_node(an_input(clock=None, clocks=clocks)))[1:] == [
        "It has no clock yet, so nothing that waits for event time is given out.",
        expected,
    ]


def test_is_held_back_by_an_input() -> None:
    ahead = an_input(name="payments", clock=TEN + 3_600 * SECOND, clocks={})
    untimed = an_input(name="customers", timed=False, clock=None, clocks={})
    assert said(a_node(ahead, an_input(), untimed))[1:] == [
        CLOCK,
        "orders holds it back, 1h behind the input that is furthest.",
    ]


def test_a_table_that_is_read_to_its_end_is_not_ahead() -> None:
    table = an_input(name="rates", clock=TIMES.stop, clocks={})
    assert said(a_node(table, an_input()))[1:] == [CLOCK]


@pytest.mark.parametrize(
    ("restarts", "retry_at", "life", "expected"),
    [
        (0, NOW + 4_000, "running", "It is tried again in 4s."),
        (
            3,
            NOW + 4_000,
            "running",
            "It has been started again 3 times and is tried again in 4s.",
        ),
        (1, NOW - 1, "running", "It has been started again once and is being tried again now."),
        (0, NOW + 4_000, "stopped", "It is tried again when the app is run."),
    ],
)
def test_failed(restarts: int, retry_at: int, life: Life, expected: str) -> None:
    node = a_node(state="failed", error="ValueError: no", restarts=restarts, retry_at=retry_at)
    sentences = said(node, life=life)
    assert "totals failed 12s ago: ValueError: no" in sentences
    assert expected in sentences


def test_works_again() -> None:
    assert said(a_node(restarts=2))[1] == "It had to be started again 2 times."
    assert said(a_node(restarts=1, state="running", batch=-1, error="KernelError: no"))[:2] == [
        "totals runs: 1,500 rows/s, and no batch has ended yet.",
        "It had to be started again once and has not got further since: KernelError: no",
    ]


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        ("stopped", "The app shop stopped 1m 5s ago. What follows is what it told last."),
        (
            "gone",
            (
                "The app shop does not run: its process 4711 is gone, and did not stop in order. "
                "It was last heard of 1m 5s ago, and goes on from there when it is run again."
            ),
        ),
        (
            "silent",
            (
                "The app shop has told nothing for 1m 5s, though its process 4711 is there: it "
                "hangs, or its machine is overloaded."
            ),
        ),
    ],
)
def test_the_app_does_not_run(life: Life, expected: str) -> None:
    assert said(a_node(state="stopped"), life=life, written_ms=NOW - 65_000) == [
        expected,
        "totals has read 1,000 rows in all and was at the end of its inputs.",
        CLOCK,
    ]


def test_the_app_stopped_by_an_error() -> None:
    first = said(a_node(), life="stopped", error="DiskFull: no room")[0]
    assert first.startswith("The app shop stopped 1s ago by an error: DiskFull: no room. ")


def test_what_it_reads_has_failed_or_is_behind() -> None:
    node = a_node(an_input(name="paid", topic="paid-v2"))
    upper = a_node(name="paid", output="paid-v2", state="failed", error="x")
    assert explain(an_app(upper, node), node, life="running", now=NOW)[1] == (
        "paid, which it reads, has failed: penstock why paid"
    )
    upper = a_node(an_input(end={"0": 501}), name="paid", output="paid-v2")
    assert explain(an_app(upper, node), node, life="running", now=NOW)[1] == (
        "paid, which it reads, is itself 1 record behind."
    )


def test_stragglers_and_what_they_corrected() -> None:
    node = a_node(an_input(stragglers=3), an_input(stragglers=1), corrected=1)
    assert said(node)[-2:] == [
        "4 rows came after the clock, in time to correct.",
        "It took back 1 result that it had given out as final.",
    ]
    assert not any("took back" in each for each in said(a_node(an_input())))


def test_duplicates() -> None:
    assert said(a_node(an_input(), dropped=2))[-1] == "It has left out 2 rows as duplicates."


def test_rejected() -> None:
    rejected = {"unparsable": 3, "late": 9, "future": 1, "missing": 2}
    assert said(a_node(an_input(rejected=rejected)))[2:] == [
        (
            '15 rows of orders were rejected, 1.5 % of those read; app.rejected("orders") is the '
            "stream of them."
        ),
        (
            "  9 late: at was more than 10s behind the latest event of the partition; a longer "
            "wait or correct_for would take them"
        ),
        "  3 unparsable: the value does not fit the schema that the stream was declared with",
        "  2 missing: at was null, so nobody knows when it happened",
        (
            "  1 future: at was more than 1d ahead of when the record was appended; a clock that "
            "sends them is wrong, or guard too short"
        ),
    ]
    told = an_input(rejected=rejected, rejected_share=0.061, rejected_alarm=0.05)
    assert said(a_node(told))[2] == (
        "ALARM: 6.1 % of the rows of orders read lately were rejected, more than 5 %, which is its "
        "rejected_alarm."
    )
    one = said(a_node(an_input(rejected={"unparsable": 1}, source={})))
    assert one[2].startswith("1 row of orders was rejected, 0.1 % of")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (59_999, "59s"),
        (4 * MINUTE, "4m"),
        (4 * MINUTE + 10_500, "4m 10s"),
        (60 * MINUTE + 5_000, "1h"),
        (26 * 60 * MINUTE, "1d 2h"),
        (1440 * MINUTE + MINUTE, "1d"),
    ],
)
def test_roughly(milliseconds: int, text: str) -> None:
    assert roughly(milliseconds) == text


def test_a_moment_that_no_calendar_has() -> None:
    assert moment(TEN) == "2026-01-31T10:00:00Z"
    assert moment(2**62) == str(2**62)
