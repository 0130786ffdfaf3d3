"""The terminal, left to this process while Spark and its workers write too."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SPARK_LOG = "spark.log"  # in the app's folder


@contextmanager
def others_write_to(path: Path) -> Iterator[None]:
    """Leaves the terminal to this process: those it starts write into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    streams = sys.stdout, sys.stderr
    terminals = [os.dup(stream.fileno()) for stream in streams]
    sys.stdout, sys.stderr = (os.fdopen(each, "w", buffering=1) for each in terminals)
    with path.open("w") as file:
        for stream in streams:
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    try:
        yield
    finally:
        for stream, terminal in zip(streams, terminals, strict=True):
            os.dup2(terminal, stream.fileno())
        sys.stdout, sys.stderr = streams
