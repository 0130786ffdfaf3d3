"""Which lines of a traceback are the user's own: those of files that nobody has installed."""

import re
import sysconfig
import traceback
from pathlib import Path

# Where code lies that is not the user's: penstock itself, and what is installed.
NOT_THEIRS = (
    str(Path(__file__).parents[2]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    "<",  # <frozen importlib._bootstrap>, <string>
)
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
# Of a worker on another host, whose packages may lie elsewhere.
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|\.zip/")


def users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The places in the user's code that an error came through, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)
    return [each for each in frames if _is_theirs(each.filename)]


def place_of(error: BaseException) -> str:
    """`app.py, line 7, in paid`: where in the user's code it was raised; "" if it was not."""
    frames = users_frames(error)
    return (
        f"{frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}" if frames else ""
    )


def place_in(text: str) -> str:
    """The same of a traceback that came as text from another process."""
    found = [each for each in _FRAME.findall(text) if _is_theirs(each[0])]
    return "{}, line {}, in {}".format(*found[-1]) if found else ""


def _is_theirs(file: str) -> bool:
    return not file.startswith(NOT_THEIRS) and not _INSTALLED.search(file)
