"""Where the stateful operators of a query keep what they know, while the query is being built.

An app builds each node inside `building`, so operators find their place by themselves; outside an
app they are given the checkpoint of the query that they will be part of.
"""

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from penstock.errors import InvalidInput, StateError
from penstock.streams.algebra.kernel import Stepping
from penstock.streams.spark.query.graph import QueryGraph
from penstock.streams.spark.query.identity import operator_spec

_MEMORY = Path("/dev/shm")
_CLAIM = "checkpoint"  # the file that names it
_ENOUGH = 2**30  # bytes that must be free in memory, for state to be kept there while it is warm


@dataclass
class QueryPlace:
    """Where the operators of a node, or of a query outside an app, are built; those built so far.

    In an app that is the `graph` of a query; outside, `checkpoint` is the folder of the query. With
    `one_host` all tasks run on this machine and pass large payloads by file.
    """

    checkpoint: str
    buckets: int
    one_host: bool
    numbered: bool = True
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)
    graph: QueryGraph | None = None  # of the query that a node of an app is part of
    cohort: str = ""
    states: dict[str, str] = field(default_factory=dict)  # what operators' state is called there

    def add_operator(self, kernel: Stepping, *, state: str = "", inputs: Sequence[str] = ()) -> str:
        """Names an operator by what it does and how many came before it, or outside an app by
        all that it is.

        What is noted of it is what its state depends on: columns that it does not read may come
        and go.
        """
        spec = operator_spec(kernel)
        which = str(len(self.operators))
        if not self.numbered:  # each has a place object of its own there
            which = hashlib.blake2b(json.dumps(spec).encode(), digest_size=4).hexdigest()
        name = f"{which}-{spec['kernel']}"
        self.operators[name] = spec | ({"reads": list(inputs)} if inputs else {})
        if state:
            self.states[name] = state
        return name

    @property
    def state(self) -> str:
        return f"{self.checkpoint.rstrip('/')}/state"


def warm_folder(checkpoint: str) -> Path:
    """This host's own folder for what it keeps of a query's state, of which nothing is needed.

    PENSTOCK_WARM says where; otherwise it is in memory when there is room, as a disk would be
    kept busy with pages that nobody reads back.
    """
    name = hashlib.blake2b(checkpoint.encode(), digest_size=8).hexdigest()
    return _warm_home() / name


def forget_warm(checkpoint: str) -> None:
    """Gives back the memory of a query that does not go on."""
    shutil.rmtree(warm_folder(checkpoint), ignore_errors=True)


@contextmanager
def warm_claimed(checkpoint: str) -> Iterator[None]:
    """Claims it, and gives back its memory at the end, which has to come after Spark's."""
    claim_warm(checkpoint)
    try:
        yield
    finally:
        forget_warm(checkpoint)


def claim_warm(checkpoint: str) -> None:
    """Notes whose folder it is, and removes those that nobody uses: of checkpoints that are there
    no more, and of other apps whose process has ended without removing its own. What this app has
    left is of use to it."""
    if "://" in checkpoint:  # whether that is still there, only those who reach it know
        return
    own = warm_folder(checkpoint)
    for note in _warm_home().glob(f"*/{_CLAIM}"):
        # Of a node that was never started there is the folder around it.
        with suppress(FileNotFoundError):  # another app does the same
            whose, _, process = note.read_text().partition("\n")
            is_left = note.parent != own and not Path(f"/proc/{process}").exists()
            if is_left or not Path(whose).parent.exists():
                shutil.rmtree(note.parent, ignore_errors=True)
    own.mkdir(exist_ok=True)
    (own / _CLAIM).write_text(f"{Path(checkpoint).absolute()}\n{os.getpid()}")


@cache
def _warm_home() -> Path:
    home = os.environ.get("PENSTOCK_WARM")
    if home is None:
        in_memory = _MEMORY.is_dir() and _free(_MEMORY) > _ENOUGH
        home = str(_MEMORY if in_memory else tempfile.gettempdir())
    own = Path(home) / f"penstock-{os.getuid()}"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = own.lstat()
    # Anybody may make a folder there, or a link, and read what is put into it.
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise StateError(
            f"{own} is not a folder of this user alone",
            hint="remove it, or set PENSTOCK_WARM to another folder",
        )
    return own


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


_present: ContextVar[QueryPlace | None] = ContextVar("penstock_place", default=None)


def present_graph() -> QueryGraph | None:
    """That of the query whose node is being built."""
    present = _present.get()
    return None if present is None else present.graph


@contextmanager
def building(place: QueryPlace) -> Iterator[QueryPlace]:
    token = _present.set(place)
    try:
        yield place
    finally:
        _present.reset(token)


def place_for(checkpoint: str | None, buckets: int, one_host: bool) -> QueryPlace:
    """That of the node being built, or one for a query outside an app."""
    present = _present.get()
    if present is not None:
        return present
    if checkpoint is None:
        raise InvalidInput(
            "a stateful operator on a stream needs a place for its state",
            hint="use it inside an app, or give checkpoint=, the folder that the query's "
            "checkpointLocation names",
        )
    return QueryPlace(checkpoint, buckets, one_host, numbered=False)
