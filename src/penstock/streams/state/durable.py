"""The durable form of a bucket's state: a delta for each version, and now and then a base.

    <address>/<operator>/<buckets>/<bucket>/00000000000000000041.delta
    <address>/<operator>/<buckets>/<bucket>/00000000000000000041.base

A delta has the rows that its version changed, with those removed marked so; a base has all rows
there are. A base is written when the deltas since the last one outweigh it, so that all that is
written is a constant factor of what changed. A version that changed as many rows as are left has a
base alone. Each delta names the identity of the version before it, so that files of two histories,
as a checkpoint that was reset leaves them, are never mixed.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import InvalidInput, StateMismatch, StateMissing
from penstock.streams.state.files import (
    NOTHING,
    TRAILER_BYTES,
    Reached,
    Trailer,
    damaged,
    read_file,
    read_trailer,
    write_file,
)
from penstock.streams.state.places import place_at
from penstock.streams.state.schema import StateSchema

DELTA, BASE = "delta", "base"

_NAME = re.compile(r"(\d{20})\.(delta|base)(\.\w+\.unfinished)?")
_OPERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WAYS_ON = "rebuild the node beside the old state, or reset it: penstock run --rebuild / --reset"

# A file costs a read however small it is, and a base is not worth it below some size.
_FILE_WEIGHT = 16 * 1024
_LEAST_WEIGHT = 1024 * 1024


class Weights(NamedTuple):
    """What it would cost to read the last base, and the deltas since."""

    base: int = 0
    deltas: int = 0

    @classmethod
    def of_base(cls, size: int) -> "Weights":
        return cls(size + _FILE_WEIGHT)

    def with_delta(self, size: int) -> "Weights":
        return Weights(self.base, self.deltas + size + _FILE_WEIGHT)

    @property
    def is_base_due(self) -> bool:
        return self.deltas > max(self.base, _LEAST_WEIGHT)


class Route(NamedTuple):
    """How to come to a version: from a base, or from nothing, or from what an arena has."""

    base: int | None
    deltas: range
    from_arena: bool
    weights: Weights


class BucketFiles:
    def __init__(
        self, address: str, operator: str, bucket: int, buckets: int, scratch: Path | None = None
    ) -> None:
        """`scratch` is a local folder for files on their way to another place."""
        if not _OPERATOR.fullmatch(operator):
            raise InvalidInput(
                f"{operator!r} cannot name an operator",
                hint="use letters, digits, dots, dashes and underscores",
            )
        if not 0 <= bucket < buckets:
            raise InvalidInput(f"there is no bucket {bucket} of {buckets}", hint="count from 0")
        self._folder = f"{address.rstrip('/')}/{operator}/{buckets}/{bucket}"
        self._place = place_at(address, operator, str(buckets), str(bucket))
        self._scratch = scratch or Path(tempfile.gettempdir())

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def versions(self) -> tuple[dict[int, int], dict[int, int]]:
        """The versions that have a delta, and those that have a base, and the files' sizes."""
        found: dict[str, dict[int, int]] = {DELTA: {}, BASE: {}}
        for name, size in sorted(self._place.sizes().items()):
            match = _NAME.fullmatch(name)
            if match and not match[3]:
                found[match[2]][int(match[1])] = size
        return found[DELTA], found[BASE]

    def write_version(
        self,
        version: int,
        batches: Iterable[pa.RecordBatch],
        schema: StateSchema,
        *,
        whole: bool = False,
        parent: int,
        rows: int,
        reached: Reached,
    ) -> Trailer:
        """As a delta or, if `whole`, as a base alone."""
        written = self._write(
            BASE if whole else DELTA,
            batches,
            schema,
            version=version,
            parent=parent,
            rows=rows,
            reached=reached,
            identity=None,
        )
        if whole:  # a delta of another history would be taken for this version's
            self._place.delete([_name(version, DELTA)])
        return written

    def write_base(
        self, delta: Trailer, batches: Iterable[pa.RecordBatch], schema: StateSchema
    ) -> Trailer:
        """All rows of the version that this delta led to."""
        return self._write(
            BASE,
            batches,
            schema,
            version=delta.version,
            parent=NOTHING,
            rows=delta.rows,
            reached=delta.reached,
            identity=delta.identity,
        )

    def _write(
        self,
        kind: str,
        batches: Iterable[pa.RecordBatch],
        schema: StateSchema,
        *,
        version: int,
        parent: int,
        rows: int,
        reached: Reached,
        identity: int | None,
    ) -> Trailer:
        written: list[Trailer] = []

        def fill(path: Path) -> None:
            written.append(
                write_file(
                    path,
                    batches,
                    schema,
                    version=version,
                    rows=rows,
                    parent=parent,
                    reached=reached,
                    identity=identity,
                )
            )

        self._place.write(_name(version, kind), fill, self._scratch)
        return written[0]

    def newest(self, before: int) -> int | None:
        """The last version below this one that has a file."""
        deltas, bases = self.versions()
        return max((each for each in (*deltas, *bases) if each < before), default=None)

    def trailer(self, version: int, kind: str | None = None) -> Trailer:
        """That of the delta, or of the base where it is alone, unless one is asked for.

        Raises StateMissing when the file is not there.
        """
        for each in (DELTA, BASE) if kind is None else (kind,):
            name = _name(version, each)
            with contextlib.suppress(FileNotFoundError):
                return read_trailer(self._place.tail(name, TRAILER_BYTES), self._path(name))
        raise self._missing(version, _name(version, kind or DELTA))

    def read(self, version: int, kind: str = DELTA) -> tuple[Trailer, pa.RecordBatchReader]:
        """Raises StateMissing or StateDamaged."""
        name = _name(version, kind)
        try:
            content = self._place.read(name)
        except FileNotFoundError:
            raise self._missing(version, name) from None
        trailer, batches = read_file(content, self._path(name))
        if trailer.version != version:
            raise damaged(self._path(name), f"it holds version {trailer.version}")
        return trailer, batches

    def schema(self, version: int) -> StateSchema:
        deltas, bases = self.versions()
        _, batches = self.read(version, BASE if _is_whole(version, deltas, bases) else DELTA)
        return StateSchema.of_file(batches.schema)

    def check(self, version: int, schema: StateSchema) -> Trailer:
        """That of the version, which has this schema. Raises StateMissing or StateMismatch."""
        trailer = self.trailer(version)
        if trailer.schema == schema.fingerprint:
            return trailer
        difference = schema.differs_from(self.schema(version))
        raise StateMismatch(
            f"the state in {self._folder} does not fit any more: "
            + (difference or "it was written in another format"),
            hint=_WAYS_ON,
        )

    def route(self, version: int, arena: tuple[int, int] | None) -> Route:
        """The way that reads least. `arena` is the version and the identity that one has.

        Raises StateMissing when there is none.
        """
        deltas, bases = self.versions()
        first = self._first(version, deltas, bases)
        if first > version:
            self._check_history(version, deltas, bases)
        fitting = (b for b in sorted(bases, reverse=True) if first - 1 <= b <= version)
        base = next((each for each in fitting if self._is_base_of(each, version)), None)
        from_nothing = base is None and self.trailer(first).parent == NOTHING
        start = first if base is None else base + 1
        weights = Weights() if base is None else Weights.of_base(bases[base])
        for each in range(start, version + 1):
            if from_nothing and each == first:  # it has everything, as a base would
                weights = Weights.of_base(deltas[each])
            else:
                weights = weights.with_delta(deltas[each])

        routes: list[tuple[int, Route]] = []
        if arena is not None and first <= arena[0] + 1 <= version:
            ahead = range(arena[0] + 1, version + 1)
            if self.trailer(ahead[0]).parent == arena[1]:
                cost = sum(deltas[each] + _FILE_WEIGHT for each in ahead)
                routes.append((cost, Route(None, ahead, True, weights)))
        if base is not None or from_nothing:
            routes.append((sum(weights), Route(base, range(start, version + 1), False, weights)))
        if not routes:
            if first - 1 in bases:
                raise other_history(first)
            raise self._missing(first - 1, _name(first - 1, BASE))
        return min(routes, key=lambda each: each[0])[1]

    def kept(self) -> range:
        """The versions that can be opened."""
        deltas, bases = self.versions()
        if not deltas and not bases:
            return range(0)
        newest = lowest = max((*deltas, *bases))
        while lowest - 1 in deltas or lowest - 1 in bases:
            lowest -= 1
        if lowest in deltas and self.trailer(lowest, DELTA).parent == NOTHING:
            return range(lowest, newest + 1)
        fitting = (b for b in sorted(bases) if b >= lowest and self._is_base_of(b, b))
        return range(next(fitting, newest + 1), newest + 1)

    def _first(self, version: int, deltas: dict[int, int], bases: dict[int, int]) -> int:
        """The first of the deltas that lead to this version without a gap; one that has a base
        alone needs none."""
        if _is_whole(version, deltas, bases):
            return version + 1
        if version not in deltas:
            raise self._missing(version, _name(version, DELTA))
        while version - 1 in deltas:
            version -= 1
        return version

    def _check_history(self, version: int, deltas: dict[int, int], bases: dict[int, int]) -> None:
        """That a whole version follows the one before it, if that is there."""
        before = version - 1
        if (before in deltas or before in bases) and (
            self.trailer(version, BASE).parent != self.trailer(before).identity
        ):
            raise other_history(version)

    def _is_base_of(self, base: int, version: int) -> bool:
        """Whether the deltas up to the version follow this base, and not one of another history."""
        if base < version:
            expected = self.trailer(base + 1).parent
        else:
            expected = self.trailer(version).identity
        return self.trailer(base, BASE).identity == expected

    def clean(self, keep_from: int) -> list[str]:
        _, bases = self.versions()
        before = (b for b in sorted(bases, reverse=True) if b <= keep_from)
        base = next((each for each in before if self._is_base_of(each, each)), 0)
        gone = []
        for name in sorted(self._place.sizes()):
            match = _NAME.fullmatch(name)
            # What a killed process left unfinished is nobody's; that of a newer version may be.
            if match and int(match[1]) < (keep_from if match[3] else base):
                gone.append(name)
        self._place.delete(gone)
        return [self._path(name) for name in gone]

    def delete_all(self) -> None:
        self._place.delete(list(self._place.sizes()))

    def _missing(self, version: int, name: str) -> StateMissing:
        kept = sorted(set().union(*self.versions()))
        return StateMissing(
            f"version {version} of the state cannot be read: {self._path(name)} is not there",
            hint=f"there are files of versions {kept[0]} to {kept[-1]}; {_WAYS_ON}"
            if kept
            else f"nothing is kept there; {_WAYS_ON}",
        )


def clean(address: str | Path, operator: str, buckets: int, keep_from: int) -> list[str]:
    """Deletes the files that no version from `keep_from` on needs, and returns their paths.

    Only what lies before a base can go, so older versions than asked for may stay.
    """
    files = (BucketFiles(str(address), operator, bucket, buckets) for bucket in range(buckets))
    return [path for each in files for path in each.clean(keep_from)]


def other_history(version: int) -> StateMismatch:
    return StateMismatch(
        f"version {version} of the state does not follow the one before it",
        hint="a task that was given up may have written it with another result; "
        "rebuild the node from its input",
    )


def _is_whole(version: int, deltas: dict[int, int], bases: dict[int, int]) -> bool:
    """Whether the version has a base alone."""
    return version in bases and version not in deltas


def _name(version: int, kind: str) -> str:
    return f"{version:020d}.{kind}"
