"""Silence when Spark gives up a Python process that it has started."""

import sys
import traceback
from types import SimpleNamespace


def end_quietly() -> None:
    """Lets this process end without a traceback when nobody reads its last words.

    Spark closes the process of a data source as soon as it has an answer, now and then before
    the process has flushed what comes after that; its daemon then prints the broken pipe.
    """
    daemon = sys.modules["__main__"]
    if getattr(daemon.__spec__, "name", "") == "pyspark.daemon":
        daemon.traceback = SimpleNamespace(  # type: ignore[attr-defined]
            print_exc=_print_unless_broken_pipe, format_exc=traceback.format_exc
        )


def _print_unless_broken_pipe() -> None:
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()
