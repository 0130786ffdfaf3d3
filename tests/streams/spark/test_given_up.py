import sys
import traceback
from types import ModuleType, SimpleNamespace

import pytest

from penstock.streams.spark.given_up import end_quietly


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The main module of a process, which prints what its workers raise."""
    main = ModuleType("__main__")
    main.__spec__ = SimpleNamespace(name="pyspark.daemon")  # type: ignore[assignment]
    main.traceback = traceback  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


@pytest.mark.parametrize(("error", "told"), [(BrokenPipeError, False), (ValueError, True)])
def test_only_a_broken_pipe_is_not_told(
    daemon: ModuleType, capsys: pytest.CaptureFixture[str], error: type[Exception], told: bool
) -> None:
    end_quietly()
    try:
        raise error("gone")
    except Exception:
        daemon.traceback.print_exc()
    assert (f"{error.__name__}: gone" in capsys.readouterr().err) == told


def test_other_programs_are_left_alone(daemon: ModuleType) -> None:
    daemon.__spec__ = None
    end_quietly()
    assert daemon.traceback is traceback
