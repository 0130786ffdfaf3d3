"""Penstock's commands as processes of their own: to their end, in a pipe, or on a terminal."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.log.owner import LOCK_FILE, find
from penstock.testing import wait_until

PENSTOCK = (sys.executable, "-m", "penstock")
WITHIN = 30.0
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def environment(**own: str) -> dict[str, str]:
    plain = {"TERM": "xterm-256color", "TZ": "UTC", "PYTHONUNBUFFERED": ""}
    kept = {name: text for name, text in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    return kept | plain | own


def run(
    *arguments: str, stdin: bytes = b"", cwd: Path | None = None, within: float = WITHIN
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; its output goes to pipes."""
    done = subprocess.run(
        (*PENSTOCK, *arguments),
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(),
        timeout=within,
        check=False,
    )
    texts = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


class Running:
    """A command that is still running, to be read, interrupted and waited for."""

    def __init__(self, *arguments: str, cwd: Path | None = None, **environ: str) -> None:
        self._text = ""
        self._start((*PENSTOCK, *arguments), cwd, environment(**environ))

    def _start(self, command: tuple[str, ...], cwd: Path | None, env: dict[str, str]) -> None:
        self.reading, writing = os.pipe()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=writing, stderr=writing, cwd=cwd, env=env
        )
        os.close(writing)
        os.set_blocking(self.reading, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        """What it wrote so far to standard output and standard error."""
        with contextlib.suppress(BlockingIOError, OSError):  # nothing there; all ends closed
            while block := os.read(self.reading, 65536):
                self._text += block.decode(errors="replace")
        return self._text

    def shows(self, what: str, within: float = WITHIN) -> str:
        """Waits until it has written that, and returns all it wrote."""
        wait_until(
            lambda: what in self.text or self._process.poll() is not None,
            within=within,
            what=f"{what!r} in {self._text!r}",
        )
        assert what in self.text
        return self._text

    def enter(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def interrupt(self, number: int = signal.SIGINT, within: float = WITHIN) -> int:
        """Sends the signal and returns the exit status."""
        self._process.send_signal(number)
        return self.wait(within)

    def stop_reading(self) -> None:
        """Closes the reading end of its output, as `head` does at its own end."""
        os.close(self.reading)
        self.reading = os.open(os.devnull, os.O_RDONLY)

    def wait(self, within: float = WITHIN) -> int:
        def ended() -> bool:
            _ = self.text  # read all the time, as it could not end while its output is full
            return self._process.poll() is not None

        wait_until(ended, within=within, what=f"the end of a command that wrote {self._text!r}")
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        os.close(self.reading)


class OnTerminal(Running):
    """The same on a terminal of 80 by 24."""

    def _start(self, command: tuple[str, ...], cwd: Path | None, env: dict[str, str]) -> None:
        self.reading, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        self._process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=cwd, env=env
        )
        os.close(terminal)
        os.set_blocking(self.reading, False)

    def enter(self, text: str) -> None:
        os.write(self.reading, text.encode())

    @property
    def plain(self) -> str:
        """What it wrote so far, without colours."""
        return _STYLE.sub("", self.text).replace("\r\n", "\n")


@contextlib.contextmanager
def ended_server(folder: Path) -> Iterator[None]:
    """Ends the server that a command started for a folder, after the block."""
    try:
        yield
    finally:
        if find(folder) is not None:
            os.kill(json.loads((folder / LOCK_FILE).read_text())["pid"], signal.SIGTERM)
            wait_until(lambda: find(folder) is None, within=WITHIN, what="the server's end")
