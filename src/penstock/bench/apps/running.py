"""An app as users run it: `penstock run` in a folder of its own, and a client beside it."""

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from penstock.bench.apps import client
from penstock.bench.apps.cases import APP, STREAM, TABLE, Case
from penstock.bench.apps.orders import customer_rows
from penstock.bench.apps.processes import Processes, available_share
from penstock.clock import monotonic
from penstock.errors import NodeFailed, PenstockError

_LOOK_EVERY = 0.5  # seconds, at whether the app is still there
_LEAST_MEMORY = 0.08  # of the machine's: below that it would end other people's processes
_ANSWER_WITHIN = 120.0  # beyond the time that a request itself is given
_STOP_WITHIN = 60.0
_GONE_WITHIN = 20.0
_LAST_WORDS = 2_000
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class RunningApp:
    """Entered, the client is there; `start` starts the app. Ends all processes at its exit."""

    def __init__(self, source: Path, case: Case, folder: Path) -> None:
        """`source` is the folder that penstock is imported from, `folder` is empty."""
        self._source = source
        self._folder = folder
        self._case = case
        self.processes = Processes.marked()
        self.left: list[str] = []
        """Names of processes that did not end by themselves, and were killed."""
        self._app: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        (self._folder / "app.py").write_text(self._case.program())
        self._words: IO[bytes] = (self._folder / "app.log").open("w+b")
        job = {
            "data": str(self._folder / "data"),
            "app": APP,
            "stream": STREAM,
            "views": [view.name for view in self._case.views],
            "tables": {TABLE: customer_rows()} if self._case.tables else {},
        }
        # A file, unlike a pipe, never fills up.
        self._client_words: IO[bytes] = tempfile.TemporaryFile()
        self._client = subprocess.Popen(
            (sys.executable, "-P", client.__file__, json.dumps(job)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._client_words,
            text=True,
            env=self._environment(),
            start_new_session=True,  # Ctrl-C is for the benchmark, which then ends it
        )
        try:
            found = self.ask("version")
            if not Path(found).is_relative_to(self._source):
                raise PenstockError(f"penstock is imported from {found}, not from {self._source}")
        except BaseException:
            self._end_client()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stop()
        finally:
            self._end_client()
            self._words.close()

    def start(self) -> float:
        """Starts the app; returns when."""
        command = (sys.executable, "-m", "penstock", "run", "app.py", "--port", "0")
        began = monotonic()
        self._app = subprocess.Popen(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=subprocess.STDOUT,
            env=self._environment() | self.processes.environment,
            start_new_session=True,
            preexec_fn=_stop_with_parent,
        )
        return began

    def kill(self) -> None:
        """Ends the driver as `kill -9` does, and waits until all that it started has ended too, but
        for the server of the log."""
        assert self._app is not None
        self._app.kill()
        self._app.wait()
        self.left += self.processes.wait_for_end(_GONE_WITHIN, but=self._server())

    def stand_still(self) -> None:
        """Holds all processes but the server of the log, until `go_on`."""
        self.processes.send(signal.SIGSTOP, but=self._server())

    def go_on(self) -> float:
        """Returns when."""
        self.processes.send(signal.SIGCONT)
        return monotonic()

    @property
    def address(self) -> str:
        """Of the log's server."""
        return str(self._owner()["address"])

    def ask(self, what: str, **request: Any) -> Any:
        """What the client answers. Raises NodeFailed when it has none in time, when the app has
        ended, or when it takes all memory of the machine."""
        assert self._client.stdin
        assert self._client.stdout
        with suppress(BrokenPipeError):  # who has ended gives no answer
            self._client.stdin.write(json.dumps({"do": what, **request}) + "\n")
            self._client.stdin.flush()
        takes = request.get("within", 0.0) + request.get("seconds", 0.0)
        deadline = monotonic() + takes + _ANSWER_WITHIN
        with selectors.DefaultSelector() as ready:
            ready.register(self._client.stdout, selectors.EVENT_READ)
            while not ready.select(_LOOK_EVERY):
                if self._app is not None and self._app.poll() is not None:
                    raise self._failed("the app has ended")
                if available_share() < _LEAST_MEMORY:
                    raise self._failed("the app took all memory of the machine")
                if monotonic() > deadline:
                    raise self._failed(f"the client gave no answer to {what!r}")
        line = self._client.stdout.readline()
        if not line:
            raise self._failed(f"the client has ended: {_end_of(self._client_words)}")
        answer = json.loads(line)
        if "error" in answer:
            raise self._failed(answer["error"])
        return answer["answer"]

    def _failed(self, why: str) -> NodeFailed:
        return NodeFailed(why, hint=f"what the app wrote ends with:\n{_end_of(self._words)}")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self._source)}

    def _owner(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self._folder / "data" / "lock").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def _server(self) -> set[int]:
        return {int(self._owner().get("pid", 0))} & self.processes.ids()

    def _stop(self) -> None:
        """As an operator does: the app is asked to end, then the server of its log."""
        if self._app is None:
            return
        self.processes.send(signal.SIGCONT)
        self._app.terminate()
        try:
            self._app.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self._app.kill()
            self._app.wait()
            self.left.append("penstock run")
        self.left += self.processes.wait_for_end(_GONE_WITHIN, but=self._server())
        self.processes.send(signal.SIGTERM)
        self.left += self.processes.wait_for_end(_GONE_WITHIN)

    def _end_client(self) -> None:
        self._client.kill()
        self._client.communicate()
        self._client_words.close()


def _stop_with_parent() -> None:
    """For a benchmark that is killed itself: its app is asked to end, as by SIGTERM."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def _end_of(words: IO[bytes]) -> str:
    size = os.fstat(words.fileno()).st_size
    return os.pread(words.fileno(), size, 0).decode(errors="replace")[-_LAST_WORDS:]
