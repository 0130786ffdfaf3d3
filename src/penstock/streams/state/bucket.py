"""The state of one bucket of a stateful operator, at a version.

    with BucketState.open("checkpoint/state", "/var/tmp/warm", operator="sum", bucket=3, buckets=8,
                          schema=schema, version=41) as state:
        rows = state.find_or_add(keys)
        add_up(state.fixed("total"), rows, amounts)
        state.commit(42)

A step opens the version that the last step committed, and commits a higher one, which is the number
of its batch; in batches that have nothing for the bucket there is no step. It works on the arena of
this host when that is at the version, brings it up to date when it is behind, and builds it anew
when it is ahead, as after a step that is run again, or not to be trusted. What is not committed
never happened.
"""

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from penstock.errors import InvalidInput, StateError
from penstock.streams.state.arena import Arena
from penstock.streams.state.durable import BASE, BucketFiles, Warm, Weights
from penstock.streams.state.files import NOTHING, Counts, Reached, Trailer
from penstock.streams.state.journal import Journal
from penstock.streams.state.layout import row_layout
from penstock.streams.state.lock import BucketLock
from penstock.streams.state.mapped_arenas import MappedArenas
from penstock.streams.state.rows import Rows
from penstock.streams.state.schema import StateSchema

EMPTY = -1  # the version before the first
WHOLE_ROWS = 10_000  # changed, at least: of fewer, a delta is small too

_mapped = MappedArenas()


class BucketState(Rows):
    """Made by `open`; one process at a time has it."""

    def __init__(
        self, schema: StateSchema, folder: Path, arena: Arena, files: BucketFiles, lock: BucketLock
    ) -> None:
        super().__init__(schema, arena)
        self._folder = folder
        self._files = files
        self._lock = lock
        self._reached = Reached()
        self._is_over = False
        self._is_closed = False

    @classmethod
    def open(
        cls,
        address: str | Path,
        warm_folder: str | Path,
        *,
        operator: str,
        bucket: int,
        buckets: int,
        schema: StateSchema,
        version: int,
        wait: float = 30.0,
        journal: Journal | None = None,
    ) -> Self:
        """The state as the step of this version left it; -1 is before the first step.

        `address` is where the durable form lies, a path or what fsspec knows; `warm_folder` is a
        folder of this host's own. Waits so many seconds for another process that has the bucket.
        With a journal, what is committed is durable when that is written.

        Raises StateLocked, StateMissing when the version is not kept, StateDamaged when a file of
        it does not check out, StateMismatch when it has another schema or its files do not belong
        together.
        """
        if version < EMPTY:
            raise InvalidInput(f"there is no version {version}", hint="the first is 0")
        return cls.open_at(
            lambda files: None if version == EMPTY else files.trailer(version),
            address,
            warm_folder,
            operator=operator,
            bucket=bucket,
            buckets=buckets,
            schema=schema,
            wait=wait,
            journal=journal,
        )

    @classmethod
    def open_at(
        cls,
        choose: Callable[[BucketFiles], Trailer | None],
        address: str | Path,
        warm_folder: str | Path,
        *,
        operator: str,
        bucket: int,
        buckets: int,
        schema: StateSchema,
        wait: float = 30.0,
        journal: Journal | None = None,
    ) -> Self:
        """As `open`, at the version with the trailer that is chosen when no one else has the
        bucket; None is before the first step."""
        folder = _arena_folder(str(address), str(warm_folder), operator, bucket, buckets)
        files = BucketFiles(
            str(address), operator, bucket, buckets, scratch=folder, journal=journal
        )
        lock = BucketLock(folder / "lock", wait)
        try:
            arena = _mapped.take(folder)
            if arena is None or not arena.is_current():
                arena = Arena.open(folder, row_layout(schema))
            if arena is None or not arena.is_sound(schema.fingerprint):
                arena = _empty(folder, schema)
            state = cls(schema, folder, arena, files, lock)
        except BaseException:
            lock.release()
            raise
        try:
            state._reach(choose(files))
        except BaseException:
            state.close()
            raise
        return state

    @property
    def version(self) -> int:
        return self._arena.version

    @property
    def clock(self) -> int | None:
        """That the version was taken at, in microseconds; None before one was given."""
        return self._reached.clock

    @property
    def counts(self) -> Counts:
        return self._reached.counts

    def count(self, *, late: int = 0, corrected: int = 0, dropped: int = 0) -> None:
        """So many more; fewer than none are dropped when one turns out not to be a duplicate."""
        self._change()
        counts = self.counts.plus(Counts(late, corrected, dropped))
        self._reached = self._reached._replace(counts=counts)

    def commit(self, version: int, clock: int | None = None) -> None:
        """Makes what was changed durable, as this version, and ends the step.

        It is any that is higher than the one opened; what lies between them counts as given up.
        Without a clock, or with a lower one, that of the version before stays.
        """
        if version <= self.version:
            raise InvalidInput(
                f"version {version} cannot follow version {self.version}",
                hint="a step commits a higher version than the one it opens",
            )
        if clock is not None and not -(2**63) < clock < 2**63:
            raise InvalidInput(f"{clock} is no time", hint="give microseconds since 1970")
        self._change()
        if clock is not None and (self.clock is None or clock > self.clock):
            self._reached = self._reached._replace(clock=clock)
        arena = self._arena
        changed = self._changed_count()
        whole = arena.identity != NOTHING and changed >= max(len(self), WHOLE_ROWS)
        written = self._files.write_version(
            version,
            self._everything() if whole else self._changes(),
            self.schema,
            whole=whole,
            parent=arena.identity,
            rows=len(self),
            reached=self._reached,
        )
        self._settle()
        if whole or written.parent == NOTHING:  # it has everything
            weights = Weights.of_base(written.size)
        else:
            weights = Weights(*arena.weights).with_delta(written.size)
        if weights.is_base_due:
            everything = map(self.schema.file_batch, self.all_rows())
            base = self._files.write_base(written, everything, self.schema)
            weights = Weights.of_base(base.size)
        if arena.is_wasteful:
            self._repack()
        self._arena.end_step(version, written.identity, weights)
        self._is_over = True

    def close(self) -> None:
        """What was not committed is forgotten."""
        if self._is_closed:
            return
        self._is_over = self._is_closed = True
        if not self._arena.is_dirty:
            _mapped.put(self._folder, self._arena)
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _change(self) -> None:
        if self._is_over:
            raise StateError("the step has ended", hint="open the state at the version it reached")
        super()._change()

    def _reach(self, wanted: Trailer | None) -> None:
        """Brings the arena to the version with this trailer."""
        if wanted is None:
            if self.version != EMPTY:
                self._arena = _empty(self._folder, self.schema)
            return
        self._files.check_schema(wanted, self.schema)
        version = wanted.version
        self._reached = wanted.reached
        if (self.version, self._arena.identity) == (version, wanted.identity):
            return
        weights = Weights(*self._arena.weights)
        route = self._files.route(version, Warm(self.version, self._arena.identity, weights))
        if not route.from_arena and self.version != EMPTY:
            self._arena = _empty(self._folder, self.schema)
        identity = self._arena.identity
        if route.base is not None:
            trailer, batches = self._files.read(route.base, BASE)
            self._load(trailer.rows, batches, trailer.reached.clock)
            identity = trailer.identity
        for each in route.deltas:
            trailer, batches = self._files.read(each)
            if trailer.parent != identity:  # another process wrote it in this moment
                raise self._files.does_not_follow(each, self._files.numbers())
            self._load(0, batches, trailer.reached.clock)
            identity = trailer.identity
        self._arena.end_step(version, identity, route.weights)

    def _load(self, rows: int, batches: Iterable[pa.RecordBatch], clock: int | None) -> None:
        """Makes the changes of a file, as a step of its own, with room for so many rows."""
        self._change()
        self._arena.make_room(rows=rows)
        if self._arena.wheel is not None and clock is not None:
            # First, so that rows go where they would be at the end, and not there by and by.
            self._arena.wheel.move_on(clock)
        for batch in batches:
            self._apply(batch)
        self._settle()

    def _repack(self) -> None:
        """Copies what is live to a new arena, without what is free or garbage."""
        before = Rows(self.schema, self._arena)
        self._arena = Arena.create(self._folder, self._arena.layout, self.schema.fingerprint)
        position = None if before._arena.wheel is None else before._arena.wheel.position
        self._load(len(before), map(self.schema.file_batch, before.all_rows()), position)


def unmap(warm_folder: str | Path) -> None:
    """Lets go of the arenas of this folder that this process has mapped and does not use."""
    _mapped.forget(warm_folder)


@lru_cache(maxsize=4096)
def _arena_folder(address: str, warm_folder: str, operator: str, bucket: int, buckets: int) -> Path:
    home = hashlib.blake2b(address.encode(), digest_size=6).hexdigest()
    return Path(warm_folder) / f"{operator}-{bucket}-of-{buckets}-{home}"


def _empty(folder: Path, schema: StateSchema) -> Arena:
    arena = Arena.create(folder, row_layout(schema), schema.fingerprint)
    arena.end_step(EMPTY, NOTHING, Weights())
    return arena
