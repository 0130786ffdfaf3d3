"""The processes of a measured app, found by a mark in their environment, and what they take.

The mark is inherited: by Java, by Spark's workers, and by the server of the log, which outlives
the process that started it.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from penstock.errors import PenstockError
from penstock.testing.waiting import wait_until

MARK = "PENSTOCK_BENCH_APP"

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Processes:
    mark: str

    @classmethod
    def marked(cls) -> "Processes":
        return cls(uuid4().hex)

    @property
    def environment(self) -> dict[str, str]:
        return {MARK: self.mark}

    def ids(self) -> set[int]:
        """Those with the mark, and all that they started, whatever became of its environment."""
        wanted = f"{MARK}={self.mark}".encode()
        parents: dict[int, int] = {}
        found: set[int] = set()
        for folder in _PROC.glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is not ours
                number = int(folder.name)
                state, parent, *_ = _stat(number)
                if state == "Z":  # nobody has waited for it yet
                    continue
                parents[number] = int(parent)
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(number)
        while more := {each for each, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def pss_bytes(self) -> int:
        """Memory in proportion: a page that n processes share counts as an nth for each."""
        return sum(_pss_bytes(number) for number in self.ids())

    def cpu_seconds(self) -> float:
        """Of all, and of the children that they have waited for."""
        total = 0
        for number in self.ids():
            with suppress(OSError):
                total += sum(int(each) for each in _stat(number)[11:15])
        return total / _TICKS

    def send(self, number: signal.Signals, *, but: set[int] | None = None) -> set[int]:
        """Sends a signal to each by its id, and returns the ids."""
        reached = set()
        for each in self.ids() - (but or set()):
            with suppress(ProcessLookupError):
                os.kill(each, number)
                reached.add(each)
        return reached

    def wait_for_end(self, within: float, *, but: set[int] | None = None) -> list[str]:
        """Waits until all have ended. Those that have not after `within` seconds are killed, and
        their names returned. Raises PenstockError when even that does not end them."""
        kept = but or set()
        with suppress(TimeoutError):
            wait_until(lambda: not self.ids() - kept, within=within)
            return []
        names = sorted(filter(None, (_name(each) for each in self.ids() - kept)))
        self.send(signal.SIGKILL, but=kept)
        try:
            wait_until(lambda: not self.ids() - kept, within=within, what="the end of processes")
        except TimeoutError as error:
            raise PenstockError(f"processes {self.ids() - kept} cannot be ended") from error
        return names


def _stat(number: int) -> list[str]:
    """The fields from the state on: the name before them may hold anything."""
    return (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()


def _name(number: int) -> str:
    with suppress(OSError):
        return (_PROC / str(number) / "comm").read_text().strip()
    return ""


def _pss_bytes(number: int) -> int:
    with suppress(OSError):
        for line in (_PROC / str(number) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def available_share() -> float:
    """Of the machine's memory, what is left for who needs it."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = {words[0]: int(words[1]) for words in lines}
    return sizes["MemAvailable:"] / sizes["MemTotal:"]
