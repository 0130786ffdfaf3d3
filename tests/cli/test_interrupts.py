import os
import signal
from collections.abc import Callable

import pytest

from penstock.cli.interrupts import Interrupts


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def hold_back(*steps: Callable[[], object]) -> int:
    """Takes the steps in a held-back block; returns how many were taken before the interruption."""
    taken = 0
    with Interrupts() as interrupts:
        try:
            with interrupts.held_back():
                for step in steps:
                    step()
                    taken += 1
            pytest.fail("it was not interrupted")
        except KeyboardInterrupt:
            return taken


def interrupt() -> None:
    send(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_at_once_outside_of_a_block(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        send(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_held_back_block_is_finished_first(number: int) -> None:
    assert hold_back(lambda: send(number), list, list) == 3


def test_a_second_signal_does_not_wait() -> None:
    assert hold_back(interrupt, list, interrupt, list) == 2


def test_the_block_s_own_error_goes_first() -> None:
    with pytest.raises(ZeroDivisionError):
        hold_back(interrupt, lambda: 1 / 0)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
