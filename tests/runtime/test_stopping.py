import os
import signal
import threading

import pytest

from penstock.runtime.stopping import Stopped, told_to_stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_noted(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with told_to_stop() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        else:
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_what_has_not_begun_is_interrupted() -> None:
    with told_to_stop() as stop:
        with pytest.raises(Stopped), stop.at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)  # not any more


def test_a_thread_takes_no_signals() -> None:
    """Python would refuse it."""
    found = []

    def take() -> None:
        with told_to_stop() as stop:
            found.append(stop.is_set())

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert found == [False]
