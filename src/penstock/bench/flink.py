"""A Flink to measure beside: its environment, and the process that runs its jobs.

It has a Python of its own, since what it asks for clashes with what penstock does; that and the
jars which it reads Parquet with are kept in `penstock/flink-VERSION` of the user's cache folder;
`make peers` puts them there.
"""

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from penstock.errors import NodeFailed, PenstockError
from penstock.testing.kafka import jars_folder

FLINK, FLINK_VERSION = "Flink SQL", "2.3.0"

_JOB = Path(__file__).with_name("flink_job.py")
_WITHIN = 300.0
_LAST_WORDS = 2_000


def flink_missing() -> str:
    """What Flink lacks to run here, in one line; empty when nothing is missing."""
    if shutil.which("java") is None:
        return "Flink needs Java, which is not installed"
    if not (_folder() / "python" / "installed").exists():
        return f"Flink is not in {_folder()}"
    return ""


def _folder() -> Path:
    return jars_folder("flink", FLINK_VERSION)


class Files(NamedTuple):
    """Parquet files of a folder as a table: `types` is what stands in its parentheses."""

    types: str
    folder: Path


class Flink:
    """One process for all jobs, warm from the second on; each has a cluster of its own in it."""

    def __init__(self) -> None:
        if missing := flink_missing():
            raise PenstockError(missing, hint="run `make peers` in penstock's repository")
        python = _folder() / "python" / "bin" / "python"
        # A file, unlike a pipe, never fills up.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 closed by __exit__
        self._process = subprocess.Popen(
            (str(python), str(_JOB), str(_folder()), str(len(os.sched_getaffinity(0)))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
        )

    def milliseconds(
        self,
        tables: Mapping[str, Files],
        query: str,
        types: str,
        into: Path | None = None,
        *,
        taken_back: bool = False,
    ) -> int:
        """How long a query over tables runs; its rows go into Parquet files, or nowhere.

        When rows may be `taken_back`, the files have changes: lines of JSON, with what was there
        `before` and what is `after`.

        Raises NodeFailed, with the end of what Flink said, when it fails or does not end.
        """
        assert self._process.stdin
        assert self._process.stdout
        job = {
            "tables": {name: (each.types, str(each.folder)) for name, each in tables.items()},
            "query": query,
            "types": types,
            "into": str(into) if into else None,
            "taken_back": taken_back,
        }
        with contextlib.suppress(BrokenPipeError):  # who has ended gives no answer
            print(json.dumps(job), file=self._process.stdin, flush=True)
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            answer = self._process.stdout.readline() if ready.select(_WITHIN) else ""
        if not answer:
            self._process.kill()
            size = os.fstat(self._words.fileno()).st_size
            words = os.pread(self._words.fileno(), size, 0).decode(errors="replace")
            raise NodeFailed(
                f"Flink gave no answer to {query}", hint=f"it said: {words[-_LAST_WORDS:]}"
            )
        return int(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Its Java ends with it.
        self._process.kill()
        self._process.communicate()
        self._words.close()
