"""Who an error is about: a note on the exception, which survives the way through Spark as text."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

_NOTE = re.compile(r"\[penstock (\w+) ([^\]]+)\]")


@contextmanager
def blame(kind: str, which: str | int) -> Iterator[None]:
    """Notes of what is raised inside that it is about this source, leaf, output or phase."""
    try:
        yield
    except Exception as error:
        error.add_note(f"[penstock {kind} {which}]")
        raise


def blames(error: BaseException) -> list[tuple[str, str]]:
    """What an error is about, the most exact first: a phase only where nothing else is said."""
    found = _NOTE.findall("\n".join([str(error), *getattr(error, "__notes__", ())]))
    return [each for each in found if each[0] != "phase"] or found
