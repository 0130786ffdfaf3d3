"""A command-line client as a running process: lines in, lines out."""

import contextlib
import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence

from penstock.events.record import Record
from tests.peers.clients.contract import Feed, Follower, Refused

WITHIN = 40.0


class Program:
    def __init__(self, command: Sequence[str]) -> None:
        # A file, as nobody reads what a program has to say until it has ended.
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 closed by end()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            bufsize=1,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def read(self, within: float) -> str | None:
        """The next line; an empty one when none came in time, None at the end."""
        try:
            return self._lines.get(timeout=within)
        except queue.Empty:
            return ""

    def end(self, *, ask: bool = False) -> tuple[int, str]:
        """Waits for it to end, or asks it to; its exit status and what it said of errors."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if ask:
            self._process.terminate()
        with contextlib.suppress(BrokenPipeError):  # it ended before it read everything
            self._process.stdin.close()
        try:
            status = self._process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._listener.join(WITHIN)
        self._process.stdout.close()
        self._errors.seek(0)
        said = self._errors.read()
        self._errors.close()
        return status, said


def follow(command: Sequence[str], parse: Callable[[str], Record], into: Follower) -> None:
    """Takes the records that the program prints; it ends by itself at its count, or is asked to."""
    program = Program(command)
    said, status, ended = "", 0, False
    try:
        while not into.done and not ended:
            line = program.read(0.1)
            if line:
                into.received.append(parse(line))
            ended = line is None
    finally:
        status, said = program.end(ask=not ended and not into.full)
    if ended and status:
        raise Refused(said)


class LineFeed(Feed):
    """Each record a line of the program's input; `faults` are words that tell of a refusal."""

    def __init__(
        self, command: Sequence[str], write: Callable[[Record], str], *faults: str
    ) -> None:
        self._program = Program(command)
        self._write = write
        self._faults = faults

    def send(self, record: Record) -> None:
        self._program.write(self._write(record))

    def close(self) -> None:
        status, said = self._program.end()
        if status or any(fault in said for fault in self._faults):
            raise Refused(said)
