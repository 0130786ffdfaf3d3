"""The warm form of a bucket's state: rows in mapped files that any process of the host opens.

Three files: `rows`, which begins with a page that is the head, `index` from keys to rows, and
`heap` with what varies in size; where rows fall due, `wheel` is a fourth, and where they have
groups `links`, beside a folder that is the arena of these. Nothing is scanned when they are opened.
They are worth as much as the head says: it names the schema and the version, is dirty from the
first change of a step to its end, and carries the id of the machine's boot, as pages that never
reached the disk are lost with the power and no mark of ours would tell. Whatever is not as it
should be is built anew from the durable form, so nothing here is ever mended, or synced.
"""

import uuid
from functools import cache
from pathlib import Path

import numpy as np
from crc32c import crc32c

from penstock.errors import InvalidInput, StateDamaged
from penstock.events.compiled import Numbers
from penstock.streams.state.chain_loops import LINKS
from penstock.streams.state.index_loops import (
    COUNTERS,
    ENTRIES,
    GARBAGE,
    HEAP_END,
    LIVE_ROWS,
    POSITION,
    STEP,
    USED,
    Tables,
    widen_index,
)
from penstock.streams.state.layout import RowLayout
from penstock.streams.state.mapped import MappedFile, contradicts_itself
from penstock.streams.state.wheel import NEVER_YET, Wheel

# What the head holds beside the kernels' counters.
_MAGIC, _SCHEMA, _BOOT, _BOOT_2, _VERSION, _IDENTITY, _DIRTY, _SINCE_BASE, _BASE, _CHECK = range(
    COUNTERS, COUNTERS + 10
)
_HEAD_BYTES = 4096
_HEAD_WORDS = _CHECK + 1
_ARENA = int.from_bytes(b"psarena2", "little")

_WORD = 8  # bytes
_LINKS_BYTES = LINKS * 4
_STEPS = 1 << 31  # a row notes the step that touched it last in half a word
_LEAST_ROWS = 1 << 10
_LEAST_SLOTS = 1 << 11
_LEAST_HEAP = 1 << 12
_SPARE_ROWS = 1 << 16  # that may be free, and bytes that may be garbage, in an arena of nothing
_SPARE_BYTES = 1 << 20
_MOST_ROWS = (1 << 31) - 1  # a row number has half a word of an index's entry


@cache
def _boot() -> tuple[int, int]:
    try:
        boot = uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    except (OSError, ValueError):
        boot = uuid.uuid4()  # unknown here: no other process can trust what this one leaves
    return _signed(boot.int >> 64), _signed(boot.int)


def _signed(number: int) -> int:
    """The lower 64 bits, as the head keeps them."""
    return int(np.uint64(number & (2**64 - 1)).astype(np.int64))


def _slots_for(rows: int) -> int:
    """The least size of an index in which chains stay short."""
    return max(_LEAST_SLOTS, 1 << (rows * 8 // 5).bit_length())


def _shift(slots: int) -> int:
    return 32 - (slots.bit_length() - 1)


class Arena:
    """Whoever uses one holds the bucket's lock."""

    def __init__(
        self,
        layout: RowLayout,
        rows: MappedFile,
        index: MappedFile,
        heap: MappedFile,
        wheel: Wheel | None,
        links: MappedFile | None,
        groups: "Arena | None",
    ) -> None:
        self.layout = layout
        self.wheel = wheel
        self.groups = groups
        self._links = links
        self._rows, self._index, self._heap = rows, index, heap
        self._take_views()

    @classmethod
    def create(cls, folder: Path, layout: RowLayout, schema: int) -> "Arena":
        """An empty arena in the place of what there was; dirty, until it is marked."""
        folder.mkdir(parents=True, exist_ok=True)
        rows = MappedFile(folder / "rows", _HEAD_BYTES + _LEAST_ROWS * layout.stride * _WORD)
        index = MappedFile(folder / "index", _LEAST_SLOTS * _WORD)
        heap, wheel = MappedFile(folder / "heap", _LEAST_HEAP), None
        if layout.due_at is None:
            (folder / "wheel").unlink(missing_ok=True)
        else:
            wheel = Wheel.create(folder / "wheel", layout.due_at, _LEAST_ROWS)
        links, groups = None, None
        if layout.groups is not None:
            links = MappedFile(folder / "links", _LEAST_ROWS * _LINKS_BYTES)
            groups = cls.create(folder / "groups", layout.groups, schema)
        arena = cls(layout, rows, index, heap, wheel, links, groups)
        arena.head[[_MAGIC, _SCHEMA, _DIRTY]] = _ARENA, _signed(schema), 1
        arena.head[POSITION] = NEVER_YET
        arena.head[[_BOOT, _BOOT_2]] = _boot()
        return arena

    @classmethod
    def open(cls, folder: Path, layout: RowLayout) -> "Arena | None":
        """The arena that is there, if its files can be mapped at all."""
        try:
            rows, index, heap = (MappedFile(folder / name) for name in ("rows", "index", "heap"))
            due_at = layout.due_at
            wheel = None if due_at is None else Wheel(MappedFile(folder / "wheel"), due_at)
            links = None if layout.groups is None else MappedFile(folder / "links")
        except OSError:
            return None
        groups = None if layout.groups is None else cls.open(folder / "groups", layout.groups)
        if len(rows.bytes) < _HEAD_BYTES or len(index.bytes) % _WORD:
            return None
        if (links is None) != (groups is None):
            return None
        return cls(layout, rows, index, heap, wheel, links, groups)

    def _take_views(self) -> None:
        rows, stride = self._rows.bytes, self.layout.stride
        self.head: Numbers = rows[:_HEAD_BYTES].view(np.int64)[:_HEAD_WORDS]
        self.capacity = (len(rows) - _HEAD_BYTES) // (stride * _WORD)
        self.records = rows[_HEAD_BYTES:][: self.capacity * stride * _WORD].view(np.int64)
        entries = self._index.bytes.view(np.uint64)
        self.tables = Tables(
            entries=entries,
            records=self.records,
            heap=self._heap.bytes,
            head=self.head,
            shift=_shift(len(entries)),
            most=len(entries) // 8 * 5,
            stride=stride,
            width=self.layout.key.width,
            tail=self.layout.key.has_tail,
            cells=self.layout.cells,
        )
        if self.wheel is not None:
            self.wheel.attach(self.tables)
        if self._links is not None:
            self.links = self._links.bytes.view(np.uint32)

    def _files(self) -> list[MappedFile]:
        wheel = None if self.wheel is None else self.wheel.file
        own = (self._rows, self._index, self._heap, wheel, self._links)
        of_groups = [] if self.groups is None else self.groups._files()
        return [each for each in own if each is not None] + of_groups

    @property
    def mapped(self) -> tuple[int, int]:
        """How many files, and how many bytes they have."""
        files = self._files()
        return len(files), sum(len(each.bytes) for each in files)

    def is_current(self) -> bool:
        """Whether these are still the files of the bucket, as another process may replace them."""
        return all(file.is_current() for file in self._files())

    def is_sound(self, schema: int) -> bool:
        """Whether it was left clean, by this boot of the machine, with this schema."""
        head, slots = self.head, len(self.tables.entries)
        return bool(
            head[_CHECK] == self._check()
            and (head[_MAGIC], head[_SCHEMA], head[_DIRTY]) == (_ARENA, _signed(schema), 0)
            and (head[_BOOT], head[_BOOT_2]) == _boot()
            and slots >= _LEAST_SLOTS
            and slots & (slots - 1) == 0
            and 0 <= head[USED] <= self.capacity
            and 0 <= head[HEAP_END] <= len(self.tables.heap)
            and (self.wheel is None or self.wheel.is_sound(self.capacity))
            and (self._links is None or len(self._links.bytes) >= self.capacity * _LINKS_BYTES)
            and (self.groups is None or self.groups.is_sound(schema))
        )

    def _check(self) -> int:
        return crc32c(self.head[:_CHECK].tobytes())

    @property
    def version(self) -> int:
        return int(self.head[_VERSION])

    @property
    def identity(self) -> int:
        """Of the version; the same number only in the same history."""
        return int(self.head[_IDENTITY].astype(np.uint64))

    @property
    def weights(self) -> tuple[int, int]:
        """Of the last base, and of the deltas since, as the durable form weighs them."""
        return int(self.head[_BASE]), int(self.head[_SINCE_BASE])

    @property
    def is_dirty(self) -> bool:
        return bool(self.head[_DIRTY])

    def begin_step(self) -> None:
        self.head[_DIRTY] = 1
        self.head[STEP] = (self.head[STEP] + 1) % _STEPS

    def end_step(self, version: int, identity: int, weights: tuple[int, int]) -> None:
        """Marks it clean, and at this version."""
        if self.groups is not None:
            self.groups.end_step(version, identity, weights)
        self.head[[_VERSION, _IDENTITY]] = version, _signed(identity)
        self.head[[_BASE, _SINCE_BASE]] = weights
        self.head[_DIRTY] = 0
        self.head[_CHECK] = self._check()

    @property
    def row_count(self) -> int:
        return int(self.head[LIVE_ROWS])

    @property
    def rows_end(self) -> int:
        """No row that is in use has this number or a higher one."""
        return int(self.head[USED])

    @property
    def is_wasteful(self) -> bool:
        """Whether what is free or garbage outweighs what is live, so that a copy is worth it."""
        live, garbage = self.row_count, int(self.head[GARBAGE])
        row_bytes = live * self.layout.stride * _WORD
        live_bytes = int(self.head[HEAP_END]) - garbage + row_bytes
        return (
            self.rows_end > 4 * live + _SPARE_ROWS
            or garbage > live_bytes + _SPARE_BYTES
            or (self.groups is not None and self.groups.is_wasteful)
        )

    def make_room(self, *, rows: int = 0, heap: int = 0) -> None:
        """So many rows and bytes more fit after this. What lacks is at least doubled."""
        head = self.head
        entries = int(head[ENTRIES])
        if entries + rows > self.capacity:
            capacity = max(2 * self.capacity, entries + rows)
            if capacity > _MOST_ROWS:
                raise InvalidInput(
                    f"a bucket cannot hold more than {_MOST_ROWS} rows",
                    hint="spread the state over more buckets: penstock rescale",
                )
            self._rows.grow(_HEAD_BYTES + capacity * self.layout.stride * _WORD)
            if self.wheel is not None:
                self.wheel.grow(capacity)
            if self._links is not None:
                self._links.grow(capacity * _LINKS_BYTES)
        if entries + rows > self.tables.most:
            slots = max(2 * len(self.tables.entries), _slots_for(entries + rows))
            wider = MappedFile(self._index.path.with_suffix(".new"), slots * _WORD)
            widen_index(self.tables.entries, wider.bytes.view(np.uint64), _shift(slots))
            self._index.take_over(wider)
        if int(head[HEAP_END]) + heap > len(self.tables.heap):
            size = max(2 * len(self.tables.heap), int(head[HEAP_END]) + heap)
            self._heap.grow(size)
        self._take_views()

    def damaged(self) -> StateDamaged:
        return contradicts_itself(self._rows.path.parent)
