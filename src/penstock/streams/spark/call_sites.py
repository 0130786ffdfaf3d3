"""PySpark's note of the user's line that made a column, which penstock's own columns do without.

PySpark sends the file and line of each call of `col`, `expr` and the like to Java, in several
requests, so that an error of Spark's can name them. For a column that penstock makes itself the
line says nothing to a user.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import utils

_SWITCH = "_enable_debugging_cache"  # PySpark reads the session's setting once, into this
_lock = threading.Lock()
_inside = 0
_before: bool | None = None


@contextmanager
def without_call_sites() -> Iterator[None]:
    """For the whole process: calls of another thread meanwhile lose their lines, and nothing
    else."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = getattr(utils, _SWITCH, None)
            setattr(utils, _SWITCH, False)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                setattr(utils, _SWITCH, _before)
