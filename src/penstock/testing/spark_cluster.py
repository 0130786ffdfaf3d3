"""A Spark cluster on this machine, from the pip package: a master, and workers that can be lost."""

import contextlib
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.streams.spark.java import java_home
from penstock.testing.child import Child

_START_WITHIN = 60.0
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class SparkCluster:
    """A standalone master and its workers, on loopback, each worker with folders of its own.

    Executors and their Python processes use this interpreter and this process's environment, so
    they import what it can import. `master` is the address for a session.
    """

    def __init__(
        self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g"
    ) -> None:
        """Starts it and waits until all are registered; `cores` and `memory` are a worker's.

        What an executor asks for, 1g of memory unless set, must fit into a worker. Raises
        LogUnreachable, with what it printed, when a part of it does not come up.
        """
        self._home = _spark_home()
        self._environment = {
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._workers: list[Child] = []
        self._master = self._start("master.Master", "--port", "0")
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            self.master = self._master.wait_until(
                lambda: _MASTER_AT.search(self._master.output),
                within=_START_WITHIN,
                what="a Spark master",
            )[1]
            for number in range(workers):
                self._workers.append(self._start_worker(folder / str(number), cores, memory))
            for worker in self._workers:
                worker.wait_until(
                    lambda worker=worker: _REGISTERED in worker.output,  # type: ignore[misc]
                    within=_START_WITHIN,
                    what="a registered worker",
                )
            undo.pop_all()

    def _start_worker(self, folder: Path, cores: int, memory: str) -> Child:
        local, warm = folder / "local", folder / "warm"
        local.mkdir(parents=True)
        size = ("--cores", str(cores), "--memory", memory)
        work = ("--work-dir", str(folder / "work"))
        own = {"SPARK_LOCAL_DIRS": str(local), "PENSTOCK_WARM": str(warm)}  # as on its own machine
        return self._start("worker.Worker", *size, *work, self.master, environment=own)

    def _start(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Child:
        settings = self._environment | dict(environment or {})
        return Child(
            (
                "env",
                *(f"{name}={setting}" for name, setting in settings.items()),
                str(self._home / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{program}",
                *("--host", "127.0.0.1", "--webui-port", "0"),
                *arguments,
            )
        )

    def kill_worker(self, number: int) -> None:
        """Ends a worker, its executors and their Python processes as `kill -9` does."""
        _kill_with_descendants(self._workers[number])

    def stop(self) -> None:
        """Ends every process of it; the workers' folders stay."""
        for worker in self._workers:
            _kill_with_descendants(worker)
            worker.close()
        self._workers = []
        self._master.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _spark_home() -> Path:
    # Found without importing it: the test kit is imported by many who need no Spark.
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _kill_with_descendants(child: Child) -> None:
    if not child.running:
        return
    # Read before the worker ends: its executors have another parent from then on. It ends before
    # they do, or it would start others.
    heirs = descendants(child.pid)
    child.kill()
    for pid in heirs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(ancestor: int) -> list[int]:
    """The processes started by a process, and by those, parents first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            # The name stands in parentheses and may hold anything; then the state, then the parent.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [ancestor]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]
