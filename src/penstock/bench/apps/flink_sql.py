"""Flink SQL as a contender: all views of an app are one job, over the same orders in files."""

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from penstock.bench.apps.cases import FLINK_TYPES, STREAM, Case
from penstock.bench.apps.contenders import Contender, Measured, Pace
from penstock.bench.apps.figures import FIRST, SPEED
from penstock.bench.apps.orders import Backlog
from penstock.bench.apps.processes import Processes
from penstock.bench.flink import FLINK, FLINK_VERSION, flink_missing
from penstock.clock import monotonic
from penstock.errors import NodeFailed, PenstockError
from penstock.testing.kafka import jars_folder

_JOB = Path(__file__).with_name("flink_views.py")
_WITHIN = 1_200.0
_GONE_WITHIN = 20.0
_LAST_WORDS = 2_000


class FlinkSql(Contender):
    name = FLINK

    def __init__(self, folder: Path) -> None:
        """`folder` is made, and gets the orders as Parquet."""
        super().__init__()
        if missing := flink_missing():
            raise PenstockError(
                missing, hint="run `make peers` in penstock's repository, or give --no-flink"
            )
        self._folder = folder

    def measure(self, case: Case, backlog: Backlog, pace: Pace) -> Measured:
        if not self._folder.exists():
            backlog.write(self._folder)
        began = monotonic()
        with _Process() as flink:
            flink.milliseconds(case, self._tables(case, "one"))
            yield FIRST, monotonic() - began
            tables = self._tables(case, "all")
            flink.milliseconds(case, tables)  # warms it up
            yield SPEED, backlog.rows / flink.milliseconds(case, tables)

    def _tables(self, case: Case, orders: str) -> dict[str, Path]:
        beside = {name: self._folder / name for name in case.tables}
        return {STREAM: self._folder / orders} | beside


class _Process:
    """A process of Flink, new for each app, so that its start can be measured."""

    def __enter__(self) -> Self:
        jars = jars_folder("flink", FLINK_VERSION)
        python, cores = jars / "python" / "bin" / "python", len(os.sched_getaffinity(0))
        self._processes = Processes.marked()
        # A file, unlike a pipe, never fills up.
        self._words: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            (str(python), str(_JOB), str(jars), str(cores)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            env={**os.environ, **self._processes.environment},
            start_new_session=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._words.close()
        self._processes.wait_for_end(_GONE_WITHIN)

    def milliseconds(self, case: Case, tables: Mapping[str, Path]) -> int:
        """Raises NodeFailed, with the end of what Flink said, when it fails or does not end."""
        assert self._process.stdin
        assert self._process.stdout
        job = {
            "tables": {name: (FLINK_TYPES[name], str(tables[name])) for name in tables},
            "views": [(view.name, view.flink, view.columns) for view in case.views],
        }
        with suppress(BrokenPipeError):  # who has ended gives no answer
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            answer = self._process.stdout.readline() if ready.select(_WITHIN) else ""
        if not answer:
            size = os.fstat(self._words.fileno()).st_size
            words = os.pread(self._words.fileno(), size, 0).decode(errors="replace")
            raise NodeFailed(
                f"Flink gave no answer to {case.name}", hint=f"it said: {words[-_LAST_WORDS:]}"
            )
        return int(answer)
