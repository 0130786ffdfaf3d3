"""The durable form of a bucket's state: a delta for each version, and now and then a base.

    <address>/<operator>/<buckets>/<bucket>/00000000000000000041.delta
    <address>/<operator>/<buckets>/<bucket>/00000000000000000041.base

A delta has the rows that its version changed, with those removed marked so; a base has all rows
there are. A base is written when the deltas since the last one outweigh it, so that all that is
written is a constant factor of what changed. A version that changed as many rows as are left has a
base alone.

Versions have gaps: a bucket takes no step in a batch that has nothing for it. Each names the
identity of the version that it follows, and is read from those that it goes back to. So a delta
that is lost is noticed, and files of two histories, as a checkpoint that was reset leaves them, are
never mixed. What a batch wrote that was given up is passed over: no other version follows it.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from penstock.errors import InvalidInput, StateError, StateMismatch, StateMissing
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
from penstock.streams.state.journal import Journal
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

    def with_deltas(self, sizes: Iterable[int]) -> "Weights":
        return reduce(Weights.with_delta, sizes, self)

    @property
    def is_base_due(self) -> bool:
        return self.deltas > max(self.base, _LEAST_WEIGHT)


class Warm(NamedTuple):
    """What an arena has."""

    version: int
    identity: int
    weights: Weights

    def leads_to(self, trailer: Trailer) -> bool:
        return self.version < trailer.version and self.identity == trailer.parent


class Route(NamedTuple):
    """How to come to a version: from a base, or from nothing, or from what an arena has."""

    base: int | None
    deltas: Sequence[int]  # one after the other, whatever numbers they have
    from_arena: bool
    weights: Weights


class BucketFiles:
    def __init__(
        self,
        address: str,
        operator: str,
        bucket: int,
        buckets: int,
        scratch: Path | None = None,
        journal: Journal | None = None,
    ) -> None:
        """`scratch` is a local folder for files on their way to another place. What a journal
        takes is not durable before that is."""
        if not _OPERATOR.fullmatch(operator):
            raise InvalidInput(
                f"{operator!r} cannot name an operator",
                hint="use letters, digits, dots, dashes and underscores",
            )
        if not 0 <= bucket < buckets:
            raise InvalidInput(f"there is no bucket {bucket} of {buckets}", hint="count from 0")
        self._folder = f"{address.rstrip('/')}/{operator}/{buckets}/{bucket}"
        self._place = place_at(address, operator, str(buckets), str(bucket))
        self._journal = journal
        self._scratch = scratch or Path(tempfile.gettempdir())

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def versions(self) -> tuple[dict[int, int], dict[int, int]]:
        """The versions that have a delta, and those that have a base, and the files' sizes."""
        found: dict[str, dict[int, int]] = {DELTA: {}, BASE: {}}
        sizes = self._place.sizes()
        for version, kind, name in _finished(sorted(sizes)):
            found[kind][version] = sizes[name]
        return found[DELTA], found[BASE]

    def numbers(self) -> set[int]:
        """The versions that have a file."""
        return {version for version, _, _ in _finished(self._place.names())}

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
            self._place.delete([_name(version, DELTA)], self._journal)
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

        def fill(file: BinaryIO) -> None:
            written.append(
                write_file(
                    file,
                    batches,
                    schema,
                    version=version,
                    rows=rows,
                    parent=parent,
                    reached=reached,
                    identity=identity,
                )
            )

        self._place.write(_name(version, kind), fill, self._scratch, self._journal)
        return written[0]

    def newest(self, until: int) -> int | None:
        """The last version that has a file, up to this one."""
        return max((each for each in self.numbers() if each <= until), default=None)

    def at(self, version: int) -> int:
        """The same, as there is nothing newer at this version. Raises StateMissing."""
        found = self.newest(version)
        if found is None:
            raise self.missing(version)
        return found

    def find_trailer(self, version: int, kind: str | None = None) -> Trailer | None:
        """That of the delta, or of the base where it is alone, unless one is asked for."""
        for each in (DELTA, BASE) if kind is None else (kind,):
            name = _name(version, each)
            with contextlib.suppress(FileNotFoundError):
                tail = self._place.tail(name, TRAILER_BYTES)
                return self._of_version(version, read_trailer(tail, self._path(name)), name)
        return None

    def _of_version(self, version: int, trailer: Trailer, name: str) -> Trailer:
        if trailer.version != version:
            raise damaged(self._path(name), f"it holds version {trailer.version}")
        return trailer

    def trailer(self, version: int, kind: str | None = None) -> Trailer:
        """The same. Raises StateMissing when the file is not there."""
        found = self.find_trailer(version, kind)
        if found is None:
            raise self.missing(version, kind or DELTA)
        return found

    def read(self, version: int, kind: str = DELTA) -> tuple[Trailer, pa.RecordBatchReader]:
        """Raises StateMissing or StateDamaged."""
        name = _name(version, kind)
        try:
            content = self._place.read(name)
        except FileNotFoundError:
            raise self.missing(version, kind) from None
        trailer, batches = read_file(content, self._path(name))
        return self._of_version(version, trailer, name), batches

    def schema(self, version: int) -> StateSchema:
        deltas, bases = self.versions()
        is_whole = version in bases and version not in deltas
        _, batches = self.read(version, BASE if is_whole else DELTA)
        return StateSchema.of_file(batches.schema)

    def check_schema(self, trailer: Trailer, schema: StateSchema) -> None:
        """Raises StateMismatch unless the version with this trailer has this schema."""
        if trailer.schema == schema.fingerprint:
            return
        difference = schema.differs_from(self.schema(trailer.version))
        raise StateMismatch(
            f"the state in {self._folder} does not fit any more: "
            + (difference or "it was written in another format"),
            hint=_WAYS_ON,
        )

    def route(self, version: int, arena: Warm | None) -> Route:
        """The way that reads least, from a base, the first version, or what an arena has.

        Raises StateMissing or StateMismatch when there is none.
        """
        deltas, bases = self.versions()
        there = {*deltas, *bases}
        if version not in there:
            raise self.missing(version)
        if version not in deltas:
            self._check_history(version, there)
        best: Route | None = None
        ahead: list[int] = []
        cost = 0
        for trailer in self._lineage(version, there):
            each = trailer.version
            if best is None and each in bases and self._is_own_base(each):
                weights = Weights.of_base(bases[each]).with_deltas(deltas[d] for d in ahead)
                best = Route(each, ahead[::-1], False, weights)
            if each not in deltas:
                break
            if best is None and trailer.parent == NOTHING:  # it has everything, as a base would
                weights = Weights.of_base(deltas[each]).with_deltas(deltas[d] for d in ahead)
                return Route(None, [each, *ahead[::-1]], False, weights)
            ahead.append(each)
            cost += deltas[each] + _FILE_WEIGHT
            if best is not None and cost >= sum(best.weights):
                break
            if arena is not None and arena.leads_to(trailer):
                weights = arena.weights.with_deltas(deltas[d] for d in ahead)
                return Route(None, ahead[::-1], True, weights if best is None else best.weights)
        if best is None:
            raise self.does_not_follow(ahead[-1], there)
        return best

    def _lineage(self, version: int, there: Iterable[int]) -> Iterator[Trailer]:
        """The version, the one that it follows, and so on, as far as they are there."""
        trailer = self.trailer(version)
        yield trailer
        for each in sorted((number for number in there if number < version), reverse=True):
            if trailer.parent == NOTHING:
                break
            before = self.trailer(each)
            if before.identity == trailer.parent:
                trailer = before
                yield trailer

    def kept(self) -> tuple[int, ...]:
        """The versions that can be opened, if no file between them is lost."""
        deltas, bases = self.versions()
        there = sorted({*deltas, *bases})
        if not there:
            return ()
        first: int | None = there[0]
        if first not in deltas or self.trailer(there[0], DELTA).parent != NOTHING:
            first = next((each for each in sorted(bases) if self._is_own_base(each)), None)
        return tuple(each for each in there if first is not None and each >= first)

    def _check_history(self, version: int, there: Iterable[int]) -> None:
        """That a whole version follows one of those before it, if there are any."""
        is_alone = min(there) == version
        if not is_alone and len(list(islice(self._lineage(version, there), 2))) < 2:
            raise self.does_not_follow(version, there)

    def _is_followed(self, version: int) -> bool:
        identity = self.trailer(version).identity
        later = (number for number in sorted(self.numbers()) if number > version)
        return any(self.trailer(number).parent == identity for number in later)

    def _is_own_base(self, version: int) -> bool:
        """Whether the base of a version belongs to its delta, or is alone."""
        return self.trailer(version, BASE).identity == self.trailer(version).identity

    def clean(self, keep_from: int) -> list[str]:
        _, bases = self.versions()
        before = (b for b in sorted(bases, reverse=True) if b <= keep_from)
        base = next((b for b in before if self._is_own_base(b) and self._is_followed(b)), 0)
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

    def missing(self, version: int, kind: str = DELTA) -> StateMissing:
        """Of a version that has no file of this kind."""
        kept = sorted(self.numbers())
        return StateMissing(
            f"version {version} of the state cannot be read: "
            f"{self._path(_name(version, kind))} is not there",
            hint=f"there are files of versions {kept[0]} to {kept[-1]}; {_WAYS_ON}"
            if kept
            else f"nothing is kept there; {_WAYS_ON}",
        )

    def does_not_follow(self, version: int, there: Iterable[int]) -> StateError:
        """Of a version that follows none of those that are there."""
        before = max((number for number in there if number < version), default=None)
        if before == version - 1:
            return StateMismatch(
                f"version {version} of the state does not follow the one before it",
                hint="a task that was given up may have written it with another result; "
                "rebuild the node from its input",
            )
        return StateMissing(
            f"version {version} of the state cannot be read: "
            + ("it is not the first" if before is None else f"it does not follow version {before}")
            + f", and {self._folder} has no file of the one that it follows",
            hint=f"restore the file from a copy; {_WAYS_ON}",
        )


def clean(address: str | Path, operator: str, buckets: int, keep_from: int) -> list[str]:
    """Deletes the files that no version from `keep_from` on needs, and returns their paths.

    The newest version up to it is needed too, as nothing newer was there at `keep_from`. Only what
    lies before a base can go, and before one that another version follows: the last one may be of a
    batch that was given up. So older versions than asked for may stay.
    """
    files = (BucketFiles(str(address), operator, bucket, buckets) for bucket in range(buckets))
    return [path for each in files for path in each.clean(keep_from)]


def _finished(names: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Version, kind and name of each file that was written to its end."""
    for name in names:
        match = _NAME.fullmatch(name)
        if match and not match[3]:
            yield int(match[1]), match[2], name


def _name(version: int, kind: str) -> str:
    return f"{version:020d}.{kind}"
