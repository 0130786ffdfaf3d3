"""A log server in a process of its own, to be asked, killed and started again."""

import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock import clock
from penstock.testing.answering import answers
from penstock.testing.child import Child

_START_WITHIN = 30.0
_LISTENING = re.compile(r"^listening on (\S+:\d+)$", re.MULTILINE)


class LogServerProcess:
    """`penstock log serve` over a folder, on a free loopback port that it keeps over restarts.

    `startup_seconds` is the time from the last start of its process to its first answer.
    """

    def __init__(self, data: Path, *options: str) -> None:
        """Starts it and waits until it answers; `options` are those of `penstock log serve`.

        Raises LogUnreachable, with what it printed, when it does not come up.
        """
        self.data = data
        self._options = options
        self._start("127.0.0.1:0")

    def _start(self, listen: str) -> None:
        serve = ("log", "serve", "--data", str(self.data), "--listen", listen)
        started = clock.monotonic()
        self._child = Child((sys.executable, "-m", "penstock", *serve, *self._options))
        listening = self._child.wait_until(
            lambda: _LISTENING.search(self._child.output),
            within=_START_WITHIN,
            what="a line `listening on HOST:PORT`",
        )
        self.address = listening[1]
        self._child.wait_until(
            lambda: answers(self.address), within=_START_WITHIN, what="an answer from the log"
        )
        self.startup_seconds = clock.monotonic() - started

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.running

    @property
    def output(self) -> str:
        """What it printed since it was last started."""
        return self._child.output

    @property
    def resident_bytes(self) -> int:
        return self._child.resident_bytes

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        self._child.kill()

    def stop(self) -> int:
        """Ends it with SIGTERM and returns its exit status."""
        return self._child.stop()

    def restart(self) -> None:
        """Starts it again at the same address, after it was killed or stopped or by stopping it."""
        if self.running:
            self.stop()
        self._child.close()
        self._start(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running:
            self.stop()
        self._child.close()
