"""One partition: segments in a row, appended to at the end, read anywhere, forgotten at the start.

Appending writes; acknowledging waits for the sync. One `fdatasync` covers every append before it
(group commit), and only what is synced can be read: `end_offset` is the durable end.

A write or a sync may take seconds, and nobody but other writers waits for it: `_writing` is held
across a write, `_settling` across what is derived or deleted, and `_lock`, which readers and those
who wait for a sync take, only while numbers change. They are taken in the order settling, writing,
lock.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import Executor
from operator import attrgetter
from pathlib import Path

from penstock.clock import now_ms
from penstock.errors import CorruptBatch, OffsetOutOfRange, StorageFailed
from penstock.events.batch import BatchHeader
from penstock.log.policy import TopicPolicy
from penstock.log.storage.append_times import AppendTimes
from penstock.log.storage.claims import Claim, admit, check_not_a_writer
from penstock.log.storage.files import storage_error, sync_folder, write_atomically
from penstock.log.storage.keys import KeyIndex
from penstock.log.storage.producers import Appended, Producers, Written
from penstock.log.storage.published import Published
from penstock.log.storage.recovery import PRODUCERS_FILE, open_segments
from penstock.log.storage.segment import Segment, Slice
from penstock.log.storage.stamping import stamped
from penstock.log.storage.warm import WarmIndexes

Done = Callable[[Exception | None], None]
log = logging.getLogger(__name__)
_base = attrgetter("base_offset")


class Partition:
    def __init__(
        self, folder: Path | None, topic: str, index: int, policy: TopicPolicy, syncs: Executor
    ) -> None:
        in_memory = policy.durability == "memory" or folder is None
        self.topic = topic
        self.index = index
        self.policy = policy
        self.failure: StorageFailed | None = None
        self._folder = None if in_memory else folder
        self._syncs = syncs
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[tuple[int, Done]] = []
        self._watchers: list[Callable[[], None]] = []
        self._syncing = False
        self._unsynced: list[tuple[Segment, bytes]] = []  # closed, and the producers as of then
        self._settling = threading.Lock()
        self._has_new_file = True
        self._abandoned = False
        self._warm = WarmIndexes()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._published = Published(folder, in_memory=in_memory)
        self._producers = Producers()
        acknowledged = max(self._published.durable, self._published.start)
        recovery = open_segments(self._folder, acknowledged, self._producers)
        self.recovery = recovery.figures
        self._told = {(damage.file, damage.position) for damage in self.recovery.damage}
        # Replaced, never changed, so that readers need no lock.
        self.segments = recovery.segments
        self._durable = (self._active, self._active.size)
        self.next_offset = self.end_offset = self._active.next_offset
        self.start_offset = max(self.segments[0].base_offset, self._published.start)
        if self.recovery.scanned_bytes and policy.durability == "fsync":
            self._sync_files(recovery.checked)  # before what a killed process left is read
        self._published.end(self.end_offset)
        self.append_times = AppendTimes(self._folder, self.next_offset)
        self._keys = KeyIndex(self._folder, self.next_offset)
        # At this offset all that a close would write is there already.
        self._closed_at = -1 if self.recovery.scanned_bytes else self.next_offset

    @property
    def _active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self.segments)

    # Appending

    def append(self, data: memoryview, claim: Claim | None = None) -> Appended:
        """Writes the batches a producer sent; they are durable once `when_durable` says so.

        With a claim, `data` is changed in place, and a crash leaves all of it or nothing. Raises
        CorruptBatch, RecordTooLarge, SequenceError, VersionConflict or StorageFailed, and then
        nothing of `data` is stored.
        """
        headers = admit(data, self.topic, self.policy.max_message_bytes)
        if claim is None:
            check_not_a_writer(headers[0])
        else:
            headers = claim.put_on(data, headers)
            if claim.needs_keys:
                self._follow_keys()  # most of it now, while others can append
        with self._writing:
            with self._lock:
                if self.failure:
                    raise self.failure
                known = self._known(headers[0], claim)
            if known:
                return known.again
            if claim is not None:
                self._check_version(claim)
            try:
                return self._write(data, headers, now_ms())
            except OSError as error:
                raise storage_error(error, f"appending to {self.topic}/{self.index}") from error

    def _known(self, header: BatchHeader, claim: Claim | None) -> Written | None:
        if claim is not None:
            last = self._producers.last_of(claim.writer)
            return last if last and claim.batch <= last.last_sequence else None
        return self._producers.check(header) if header.producer_id >= 0 else None

    def _check_version(self, claim: Claim) -> None:
        if claim.needs_keys:
            self._follow_keys()
        where, start = f"{self.topic}/{self.index}", self.start_offset
        claim.check_version(where, self.next_offset - 1, lambda key: self._keys.last(key, start))

    def _follow_keys(self) -> None:
        until = self.next_offset  # before the segments, or the one that holds it may be missing
        self._keys.follow(self.segments, until)

    def last_append_of(self, writer: int) -> Written | None:
        """What a writer stored last here, durable or not yet."""
        with self._lock:
            return self._producers.last_of(writer)

    def _write(self, data: memoryview, headers: list[BatchHeader], now: int) -> Appended:
        append_time = now if self.policy.message_timestamp_type == "LogAppendTime" else -1
        with self._lock:
            self._check_kept()
            if self._is_full(len(data), now):
                self._roll(now)
        segment, base = self._active, self.next_offset
        position, end = segment.size, segment.write(stamped(data, headers, base, append_time))
        offset = base
        for header in headers:
            stored = header if append_time < 0 else header._replace(max_timestamp=append_time)
            segment.index.note(stored, offset, position)
            position += header.size
            offset += header.last_offset_delta + 1
        with self._lock:
            self._check_kept()
            self.append_times.note(base, now)
            at = base
            for header in headers:
                if header.producer_id >= 0:
                    self._producers.note(header, at, append_time, now)
                at += header.last_offset_delta + 1
            segment.size, segment.next_offset = end, offset
            self.next_offset = offset
            if self.policy.durability != "fsync":
                self._advance(offset, segment, end)
        return Appended(base, offset, append_time)

    def _check_kept(self) -> None:
        """Before anything is done to the folder: a new topic of the name may have it already."""
        if self._abandoned and self.failure:
            raise self.failure

    def _is_full(self, size: int, now: int) -> bool:
        active, policy = self._active, self.policy
        if not active.size:
            active.began_ms = now
            return False
        return (
            active.size + size > policy.segment_bytes or now - active.began_ms >= policy.segment_ms
        )

    def _roll(self, now: int) -> None:
        closed, fresh = self._active, Segment(self._folder, self.next_offset)
        self.segments = [*self.segments, fresh]
        if self._folder is None:
            return
        self._has_new_file = True
        producers = self._producers.dump(self.next_offset, now)
        if self.policy.durability == "fsync":
            self._unsynced.append((closed, producers))
        else:
            self._syncs.submit(self._settle, closed, producers)

    def _settle(self, closed: Segment, producers: bytes) -> None:
        """Writes down what is derived from a closed segment; without it, opening takes longer.

        That there is an index also tells that the segment was synced.
        """
        try:
            with self._settling:
                if not self._abandoned and closed in self.segments:
                    closed.save_index()
                    self._save_producers(producers)
                    self._keys.save(self.start_offset)
        except OSError as error:
            log.warning("%s/%s: no index written: %s", self.topic, self.index, error)

    def _save_producers(self, producers: bytes) -> None:
        if self._folder is not None:
            write_atomically(self._folder / PRODUCERS_FILE, producers)

    # Durability

    def when_durable(self, offset: int, done: Done) -> None:
        """Calls `done` once everything before `offset` is synced, or with what prevents it.

        `done` may be called at once, or later on another thread.
        """
        with self._lock:
            if self.end_offset < offset and not self.failure:
                self._waiting.append((offset, done))
                if not self._syncing:
                    self._syncing = True
                    self._syncs.submit(self._sync)
                return
        done(self.failure if self.end_offset < offset else None)

    def _sync(self) -> None:
        more = True
        while more:
            with self._lock:
                target, segment, size = self.next_offset, self._active, self._active.size
                closed, self._unsynced = self._unsynced, []
            failure: StorageFailed | None = None
            try:
                self._sync_files([*(each for each, _ in closed), segment])
            except OSError as error:
                # What a failed sync left in memory may never reach the disk, and a second one
                # may claim that it did. So there is no second one.
                what = f"syncing {self.topic}/{self.index}"
                failure = storage_error(error, what, for_good=True)
                log.error("%s/%s takes no more writes: %s", self.topic, self.index, error)
            with self._lock:
                failure = failure or self.failure
                if failure:
                    self.failure = failure
                    ready, self._waiting = self._waiting, []
                else:
                    self._advance(target, segment, size)
                    ready = [wait for wait in self._waiting if wait[0] <= target]
                    self._waiting = [wait for wait in self._waiting if wait[0] > target]
                self._syncing = more = bool(self._waiting)
            for _, done in ready:
                try:
                    done(failure)
                except Exception:  # one who cannot be told must not keep the others waiting
                    log.exception("%s/%s: telling of a sync", self.topic, self.index)
            for each, producers in closed if failure is None else ():
                self._settle(each, producers)

    def _sync_files(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.sync()
        if self._has_new_file and self._folder is not None:
            self._has_new_file = False
            sync_folder(self._folder)

    def _advance(self, offset: int, segment: Segment, size: int) -> None:
        if offset <= self.end_offset:
            return  # a sync that began before the topic's durability was changed
        self._durable = (segment, size)  # before the offset, which readers look at first
        self.end_offset = offset
        self._published.end(offset)
        watchers, self._watchers = self._watchers, []
        for wake in watchers:
            wake()

    def watch(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once, on any thread, when more can be read. It must not block."""
        with self._lock:
            self._watchers.append(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        with self._lock:
            if wake in self._watchers:
                self._watchers.remove(wake)

    # Reading

    def slice(self, offset: int, max_bytes: int) -> Slice | None:
        """Whole batches from the one that holds `offset` on, at least one; None at the end.

        Raises OffsetOutOfRange, and CorruptBatch where the bytes are damaged.
        """
        self.check_offset(offset)
        if offset == self.end_offset:
            return None
        durable, durable_size = self._durable
        segment = self._segment_of(offset)
        limit = durable_size if segment is durable else segment.size
        try:
            return segment.slice(offset, max_bytes, limit)
        except CorruptBatch as damage:
            place = damage.file, damage.position
            if place not in self._told:
                self._told.add(place)
                log.error("%s/%s: %s", self.topic, self.index, damage.message)
            raise

    def check_offset(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.topic}/{self.index} holds offsets {self.start_offset} to "
                f"{self.end_offset}, not {offset}",
                start=self.start_offset,
                end=self.end_offset,
                hint="read from the start or from the end",
            )

    def _segment_of(self, offset: int) -> Segment:
        segments = self.segments
        segment = segments[bisect_right(segments, offset, key=_base) - 1]
        if offset < segment.base_offset:
            self.check_offset(offset)  # which raises: it was forgotten a moment ago
        if segment is not self._active:
            self._warm.keep(segment)
        return segment

    # The start

    def forget_before(self, offset: int) -> int:
        """Moves the start up to `offset` at most and deletes the segments before it.

        Returns how many segments went. Readers that hold one keep reading it.
        """
        with self._settling:
            with self._lock:
                offset = min(offset, self.end_offset)
                if offset <= self.start_offset or self._abandoned:
                    return 0
            try:
                self._published.begin(offset)
            except OSError as error:
                raise storage_error(error, f"trimming {self.topic}/{self.index}") from error
            with self._lock:
                self.start_offset = offset
                gone = [s for s in self.segments[:-1] if s.next_offset <= offset]
                self.segments = self.segments[len(gone) :]
                if gone:
                    self.append_times.forget_before(offset)
            for segment in gone:
                segment.remove()
        self._warm.forget(gone)
        return len(gone)

    def roll(self) -> None:
        """Closes the active segment, if all in it is durable, so that it can be forgotten."""
        with self._writing, self._lock:
            if self._active.size and self.end_offset == self.next_offset and not self.failure:
                self._roll(now_ms())
                self._durable = (self._active, 0)
                settled, self._unsynced = self._unsynced, []  # all of it is durable already
                for closed, producers in settled:
                    self._syncs.submit(self._settle, closed, producers)

    def abandon(self) -> None:
        """The topic is deleted: whoever waits here is told, and nothing more is written."""
        with self._settling, self._lock:
            self._abandoned = True
            self.failure = StorageFailed(f"topic {self.topic} was deleted")
            waiting, self._waiting = self._waiting, []
            watchers, self._watchers = self._watchers, []
        for _, done in waiting:
            done(self.failure)
        for wake in watchers:
            wake()

    def close(self) -> None:
        """Syncs and writes the indexes, so that the next opening need not look at the batches."""
        with self._settling, self._writing, self._lock:
            if self._folder is None or self.failure or self.next_offset == self._closed_at:
                return
            try:
                closed, self._unsynced = [each for each, _ in self._unsynced], []
                if self.end_offset < self.next_offset or self.policy.durability != "fsync":
                    self._sync_files([*closed, self._active])
                for segment in (*closed, self._active):
                    segment.save_index()
                self._save_producers(self._producers.dump(self.next_offset, now_ms()))
                self._keys.save(self.start_offset)
                self._advance(self.next_offset, self._active, self._active.size)
                self._closed_at = self.next_offset
            except OSError as error:
                what = f"closing {self.topic}/{self.index}"
                self.failure = storage_error(error, what, for_good=True)
                log.error("%s/%s did not close cleanly: %s", self.topic, self.index, error)
