import signal
import sys
from collections.abc import Iterator

import pytest

from penstock.errors import LogUnreachable
from penstock.testing import wait_until
from penstock.testing.child import Child

WAITS = "import signal; print('ready', flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


def python(program: str) -> Child:
    return Child((sys.executable, "-c", program))


@pytest.fixture
def waiting() -> Iterator[Child]:
    child = python(WAITS)
    wait_until(lambda: "ready" in child.output)
    yield child
    child.close()


def test_keeps_both_outputs() -> None:
    child = python("import sys; print('out', flush=True); print('err', file=sys.stderr)")

    wait_until(lambda: not child.running)

    assert child.output == "out\nerr\n"
    child.close()


def test_looking_at_the_output_does_not_disturb_it() -> None:
    child = python("for line in range(2000): print(line, flush=True)")

    wait_until(lambda: child.output and not child.running)

    assert child.output == "".join(f"{line}\n" for line in range(2000))
    child.close()


def test_stops_by_sigterm(waiting: Child) -> None:
    assert waiting.stop() == -signal.SIGTERM
    assert not waiting.running


def test_kills_what_does_not_stop() -> None:
    child = python(STUBBORN)
    wait_until(lambda: "ready" in child.output)

    assert child.stop(within=0.05) == -signal.SIGKILL
    child.close()


def test_measures_resident_memory_while_it_runs(waiting: Child) -> None:
    assert 1_000_000 < waiting.resident_bytes < 100_000_000

    waiting.kill()

    assert waiting.resident_bytes == 0


def test_an_early_end_is_reported_with_its_last_words() -> None:
    child = python("print('no such port'); raise SystemExit(3)")

    with pytest.raises(LogUnreachable, match=r"ended before there was light[\s\S]*no such port"):
        child.wait_until(lambda: False, within=20, what="light")


def test_a_late_answer_is_reported_and_the_child_ended(waiting: Child) -> None:
    with pytest.raises(LogUnreachable, match=r"waited 0\.01 s for an answer[\s\S]*ready"):
        waiting.wait_until(lambda: False, within=0.01, what="an answer")

    assert not waiting.running
