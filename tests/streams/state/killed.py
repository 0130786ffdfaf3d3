"""A process that runs steps and is killed in the middle of one, at a line or a moment of chance.

It reads lines: a folder, a seed. For each it forks, so that the kernels are loaded once, and writes
how the child ended. The child opens the newest version, checks it, and goes on with steps until it
is killed, by the signal that nothing can catch.
"""

import itertools
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.streams.state import BucketState, StateSchema, arena, bucket, durable
from penstock.streams.state.durable import BucketFiles
from tests.streams.state.hosts import Contents, Host, contents_of

SCHEMA = StateSchema(
    pa.schema({"id": pa.int64(), "name": pa.string()}),
    pa.schema({"n": pa.int64(), "text": pa.string(), "due": pa.int64()}),
    due="due",
)
_MOST_STEPS = 200  # which take longer than any of the children has
_ROWS = 400
_KEYS = 3000


def make_light() -> None:
    """Bases, and arenas packed anew, every few steps."""
    bucket.WHOLE_ROWS = 1000
    durable._LEAST_WEIGHT = 0
    arena._SPARE_ROWS = 10
    arena._SPARE_BYTES = 1000


def chosen(version: int) -> tuple[np.ndarray[Any, Any], int]:
    """The keys of a step, and how many of them it removes at last; now and then they are all."""
    if version % 5 == 4:
        return np.arange(_KEYS), version * 37 % 200
    return np.random.default_rng(version).integers(0, _KEYS, _ROWS), version * 37 % 200


def is_taken(version: int) -> bool:
    """Whether there is a step of this version; where there is none, the versions have a gap."""
    return version % 3 != 2


def steps_after(version: int, count: int) -> Iterator[tuple[int, int]]:
    """So many steps: the version that each of them opens, and the one that it commits."""
    taken = filter(is_taken, itertools.count(version + 1))
    return itertools.pairwise([version, *itertools.islice(taken, count)])


def newest(host: Host) -> int:
    kept = BucketFiles(host.address, "sum", 0, 1).kept()
    return kept[-1] if kept else -1


def expected(version: int) -> Contents:
    found: dict[int, list[Any]] = {}
    for each in filter(is_taken, range(version + 1)):
        ids, removed = chosen(each)
        for key in ids.tolist():
            found.setdefault(key, [0, None, None])[0] += 1
            found[key][1:] = "t" * (each % 50), key + each
        for key in ids[:removed].tolist():
            found.pop(key, None)
    return {repr([key, f"name {key}"]): repr(values) for key, values in found.items()}


def step(state: BucketState, version: int) -> None:
    ids, removed = chosen(version)
    due = state.take(state.due(version * 50)).column("id").to_pylist()
    everything = [row for batch in state.all_rows() for row in batch.to_pylist()]
    assert sorted(due) == sorted(row["id"] for row in everything if row["due"] <= version * 50)
    for part in np.array_split(ids, 4):
        names = pa.array([f"name {key}" for key in part])
        rows = state.find_or_add(pa.record_batch([pa.array(part), names], schema=SCHEMA.keys))
        np.add.at(state.fixed("n"), rows, 1)
        state.valid("n")[rows] = True
        texts = pa.array(["t" * (version % 50)] * len(part))
        state.put(rows, pa.record_batch({"text": texts, "due": part + version}))
    gone = ids[:removed]
    names = pa.array([f"name {key}" for key in gone], pa.string())
    state.remove(state.find(pa.record_batch([pa.array(gone), names], schema=SCHEMA.keys)))
    state.commit(version, version * 50)


def run(folder: Path, seed: int) -> None:
    """Does not return, but ends by a signal, unless something is wrong."""
    chance = random.Random(seed)
    host = Host(folder, SCHEMA)
    version = newest(host)
    with host.open(version) as state:
        assert contents_of(state) == expected(version), f"version {version}"
    if seed % 2:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.001, 0.06))  # ends it if not handled
    else:
        _die_at_line(chance.randrange(1, 4000))
    for before, each in steps_after(version, _MOST_STEPS):
        with host.open(before) as state:
            step(state, each)


def _die_at_line(count: int) -> None:
    """Kills this process when so many lines of the state's own code have been run."""
    left = count

    def trace(frame: FrameType, event: str, detail: object) -> Any:
        nonlocal left
        if "/streams/state/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def main() -> None:
    make_light()
    with tempfile.TemporaryDirectory() as folder:  # loads the kernels
        for before, version in steps_after(-1, 6):
            with Host(Path(folder), SCHEMA).open(before) as state:
                step(state, version)
    for line in sys.stdin:
        folder, seed = line.split()
        child = os.fork()
        if child == 0:
            try:
                run(Path(folder), int(seed))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
