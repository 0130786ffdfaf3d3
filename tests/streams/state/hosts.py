"""Hosts that share durable state, and what is in it as plain Python values."""

import io
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.streams.state import BucketState, StateSchema, arena
from penstock.streams.state.bucket import unmap

Contents = dict[str, str]


class Host:
    """A machine with a folder of its own for arenas; every host sees the same durable folder."""

    def __init__(
        self, folder: Path, schema: StateSchema, *, name: str = "a", address: str | None = None
    ) -> None:
        self.durable = folder / "durable"
        self.address = address or str(self.durable)
        self.warm = folder / f"warm-{name}"
        self.schema = schema

    def open(self, version: int, **options: Any) -> BucketState:
        where = {"operator": "sum", "bucket": 0, "buckets": 1, "schema": self.schema}
        return BucketState.open(self.address, self.warm, **{**where, "version": version, **options})

    def contents(self, version: int) -> Contents:
        with self.open(version) as state:
            return contents_of(state)

    def file(self, version: int, kind: str = "delta") -> Path:
        return self.durable / "sum" / "1" / "0" / f"{version:020d}.{kind}"

    def written(self, version: int) -> tuple[str, bytes]:
        """What a version has: a delta, or a base alone."""
        kind = "delta" if self.file(version).exists() else "base"
        return kind, self.file(version, kind).read_bytes()

    @property
    def arena(self) -> Path:
        """The folder of the arena there is."""
        (folder,) = self.warm.iterdir()
        return folder

    def weights(self) -> tuple[int, int]:
        """Of the files that the arena was made from."""
        found = np.memmap(self.arena / "rows", np.int64, "r")
        return int(found[arena._BASE]), int(found[arena._SINCE_BASE])

    def lose_arena(self) -> None:
        shutil.rmtree(self.warm, ignore_errors=True)

    def restart_process(self) -> None:
        """What a new process has mapped: nothing."""
        unmap(self.warm)


def contents_of(state: BucketState) -> Contents:
    """Keys and values as text, in which NaN equals NaN, and 0.0 is not -0.0."""
    found = [row for batch in state.all_rows() for row in batch.to_pylist()]
    keys = state.schema.keys.names
    texts = {repr([row.pop(key) for key in keys]): repr(list(row.values())) for row in found}
    assert len(texts) == len(found) == len(state)
    return texts


def folded(written: Iterable[tuple[str, bytes]], schema: StateSchema) -> Contents:
    """What the rows of these versions add up to, by the plainest of means."""
    texts: Contents = {}
    for kind, content in written:
        if kind == "base":
            texts.clear()
        for batch in pa.ipc.open_stream(io.BytesIO(content)):
            for row in batch.to_pylist():
                key = repr([row.pop(name) for name in schema.keys.names])
                if row.pop("(removed)"):
                    del texts[key]
                else:
                    texts[key] = repr(list(row.values()))
    return texts
