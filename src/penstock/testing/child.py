"""A program as a child process: its output kept, its memory measured, ended by its process id."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from penstock.errors import LogUnreachable
from penstock.testing.waiting import Answer, wait_until

_LAST_WORDS = 2_000


class Child:
    def __init__(self, command: Sequence[str]) -> None:
        # A file, unlike a pipe, never fills up and holds the child back while nobody reads it.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 closed by close()
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """What it wrote so far to standard output and standard error, in one text."""
        # Read by position: the child writes at the offset that both processes share.
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    @property
    def resident_bytes(self) -> int:
        """Its memory as the kernel counts it, without its children's; 0 once it has ended."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except FileNotFoundError:
            return 0
        lines = (line.split() for line in status.splitlines())
        return next((int(words[1]) * 1024 for words in lines if words[0] == "VmRSS:"), 0)

    def wait_until(
        self, condition: Callable[[], Answer | Literal[False] | None], *, within: float, what: str
    ) -> Answer:
        """The condition's first true answer.

        Raises LogUnreachable, with the end of the child's output, when it ends before there is one
        or takes longer than `within` seconds. A child that was not waited for to the end is closed.
        """

        def asked() -> Answer | Literal[False] | None:
            if not (answer := condition()) and not self.running:
                raise TimeoutError(f"the process ended before there was {what}")
            return answer

        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            try:
                answer = wait_until(asked, within=within, what=what)
            except TimeoutError as error:
                last_words = self.output[-_LAST_WORDS:]
                hint = f"its output ends with:\n{last_words}"
                raise LogUnreachable(str(error), hint=hint) from None
            undo.pop_all()
            return answer

    def kill(self) -> None:
        """Ends it as `kill -9` does: no handler runs, nothing is flushed."""
        self._process.kill()
        self._process.wait()

    def stop(self, within: float = 20.0) -> int:
        """Asks it to end with SIGTERM; returns its exit status, -9 when it had to be killed."""
        self._process.terminate()
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Kills it if it still runs, and forgets its output."""
        self.kill()
        self._output.close()
