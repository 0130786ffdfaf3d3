"""A range of a partition as typed rows, each classed; what cannot be a row, with the reason."""

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import InvalidInput
from penstock.events.columns import COLUMNS
from penstock.events.formats import Format, format_for
from penstock.events.formats.contract import NO_VALUE
from penstock.streams.source.classes import (
    FUTURE,
    LATE,
    MISSING,
    ON_TIME,
    REASONS,
    STRAGGLER,
    UNPARSABLE,
    Classes,
    Flags,
    Micros,
    Promise,
    classify,
)
from penstock.streams.source.event_time import TIMES
from penstock.streams.source.keys import key_rows
from penstock.streams.source.progress import Progress
from penstock.streams.source.punctuation import HEADER, read_punctuation
from penstock.streams.source.ranges import Range
from penstock.streams.source.spec import EVENT_TIME, METADATA, REJECTED, TIME, SourceSpec
from penstock.streams.source.topic import SourceTopic

_ROWS = 10_000  # smaller Arrow batches cost more than the rows in them
_NO_TIME = "the event time is outside the years 1 to 9999"
_NO_STAMP = -1_000  # Kafka's -1, in microseconds: the producer set no timestamp
_DETAILS = {
    LATE: "behind its partition's clock by more than is corrected",
    FUTURE: "ahead of the time of its being appended by more than the guard",
    UNPARSABLE: NO_VALUE,
}

Stamps = tuple[Micros, Flags]  # microseconds, and where they are meant


def in_larger_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches where they are small."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        small.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield _one(small)
            small, rows = [], 0
    if small:
        yield _one(small)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class RowReader:
    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec
        self._format = format_for(spec.format, spec.schema, spec.format_options)
        needs_key = spec.key or spec.rejected or "key" in spec.metadata
        self._columns = [name for name in COLUMNS if name != "key" or needs_key]

    def read(self, topic: SourceTopic, wanted: Range) -> Iterator[pa.RecordBatch]:
        """The rows, in the partition's order; moves the range's progress to its end."""
        progress, partition = wanted.progress, wanted.partition
        guard = _Guard(self.spec, topic, wanted)
        for columns in topic.columns(partition, progress.at, wanted.until, self._columns):
            chunk = _Chunk(columns, self.spec, partition)
            rows = chunk.rows(self._format, progress, guard.latest(chunk))
            if rows.num_rows:
                yield rows
        progress.at = wanted.until


class _Guard:
    """Says which event times are from the future."""

    def __init__(self, spec: SourceSpec, topic: SourceTopic, wanted: Range) -> None:
        self._guard = None if spec.rule is None else spec.rule.guard
        self._planned = wanted.planned * 1_000
        self._is_stamped = topic.is_stamped
        self._offsets, self._times = np.empty((2, 0), np.int64)
        if self._guard is not None:
            known = topic.append_times(wanted.partition, wanted.progress.at, wanted.until)
            if known:
                self._offsets, self._times = np.array(known, np.int64).T

    def latest(self, chunk: "_Chunk") -> Micros | int | None:
        """The highest event time that is not from the future, in microseconds."""
        if self._guard is None:
            return None
        if self._is_stamped:
            stamps, present = chunk.stamps
            return np.where(present, stamps, self._planned) + self._guard
        if not len(self._offsets):
            return self._planned + self._guard
        places = np.searchsorted(self._offsets, chunk.offsets, side="right") - 1
        appended = np.where(places >= 0, self._times[places] * 1_000, self._planned)
        return appended + self._guard


class _Chunk:
    """Some records on their way to become rows."""

    def __init__(self, columns: pa.RecordBatch, spec: SourceSpec, partition: int) -> None:
        self._spec = spec
        self._partition = partition
        self._details: dict[int, str] = {}
        self._promises: list[Promise] = []
        self._columns = self._without_punctuation(columns)
        self.offsets = self._columns["offset"].to_numpy()

    def _without_punctuation(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        headers = columns["headers"]
        if not columns["value"].null_count or not len(headers.flatten()):
            return columns
        named = _flags(pc.equal(headers.flatten().field("key"), HEADER))
        owners = pc.list_parent_indices(headers).to_numpy()
        absent = _flags(columns["value"].is_null())
        taken = np.ones(columns.num_rows, np.bool_)
        for index in np.unique(owners[named]).tolist():
            if not absent[index]:
                continue
            place = index - len(self._promises)
            pairs = [(each["key"], each["value"]) for each in headers[index].as_py()]
            try:
                promise = read_punctuation(pairs)
            except InvalidInput as broken:
                self._details[place] = broken.message
                continue
            assert promise is not None
            taken[index] = False
            self._promises.append(Promise(place, *promise))
        return columns.filter(pa.array(taken)) if self._promises else columns

    @cached_property
    def stamps(self) -> Stamps:
        """The timestamps of the records; a producer may have left them out, or set them wild."""
        micros, present = _micros(self._columns["timestamp"].view(pa.int64()), 1_000)
        return micros, present & (micros != _NO_STAMP)

    def rows(self, form: Format, progress: Progress, latest: Micros | int | None) -> pa.RecordBatch:
        count = self._columns.num_rows
        values = self._columns["value"]
        parsed = _flags(values.is_valid())
        deleted = np.zeros(count, np.bool_)
        if self._spec.key:
            deleted = ~parsed
            deleted[list(self._details)] = False  # broken punctuation deletes nothing
        here = np.flatnonzero(parsed)
        decoded = form.decode(values.drop_null() if values.null_count else values)
        for position, detail in decoded.refused:
            self._details[int(here[position])] = detail
            parsed[here[position]] = False
        rows = decoded.rows
        if deleted.any():
            rows = self._with_deleted(rows, parsed, deleted)

        classes, times = self._classes(rows, parsed, deleted, progress, latest)
        kept = classes <= STRAGGLER
        progress.marks += len(self._promises)
        progress.read += count
        progress.kept += int(kept.sum())
        progress.stragglers += int((classes == STRAGGLER).sum())
        for code, reason in REASONS.items():
            if number := int((classes == code).sum()):
                progress.rejected[reason] += number
        if self._spec.rejected:
            return self._rejected(classes, times)
        return self._kept(rows, parsed, kept, times, deleted)

    def _with_deleted(self, rows: pa.RecordBatch, parsed: Flags, deleted: Flags) -> pa.RecordBatch:
        """The rows with those that are deleted among them, which have nothing but their key.

        These are parsed then; whose key cannot be read is not deleted.
        """
        places = np.flatnonzero(deleted)
        found = key_rows(
            self._columns["key"].take(pa.array(places)), self._spec.schema, self._spec.key
        )
        for position, detail in found.refused:
            self._details[int(places[position])] = detail
            deleted[places[position]] = False
        order = np.argsort(np.concatenate((np.flatnonzero(parsed), np.flatnonzero(deleted))))
        parsed |= deleted
        return pa.concat_batches([rows, found.rows]).take(pa.array(order))

    def _classes(
        self,
        rows: pa.RecordBatch,
        parsed: Flags,
        deleted: Flags,
        progress: Progress,
        latest: Micros | int | None,
    ) -> tuple[Classes, Micros | None]:
        if self._spec.rule is None:
            for promise in self._promises:
                progress.promise(promise.producer, promise.time)
            return np.where(parsed, ON_TIME, UNPARSABLE).astype(np.uint8), None
        times = np.zeros(len(parsed), np.int64)
        present = np.zeros(len(parsed), np.bool_)
        times[parsed], present[parsed] = self._event_times(rows, parsed)
        if deleted.any():  # the time of the record, as it has no columns
            times[deleted] = self.stamps[0][deleted]
            present[deleted] = self.stamps[1][deleted]
        wild = present & ~_are_times(times)
        for index in np.flatnonzero(wild).tolist():
            self._details[index] = _NO_TIME
        classes = classify(
            times, present & ~wild, latest, self._spec.rule, progress, self._promises
        )
        classes[~parsed | wild] = UNPARSABLE
        return classes, times

    def _event_times(self, rows: pa.RecordBatch, parsed: Flags) -> Stamps:
        rule = self._spec.rule
        assert rule is not None

        def micros(name: str | None) -> Stamps:
            if name is None:
                return self.stamps[0][parsed], self.stamps[1][parsed]
            if pa.types.is_timestamp(rows[name].type):
                return _micros(rows[name].view(pa.int64()), 1)
            return _micros(rows[name], 1_000)

        if rule.occurred is None:
            return micros(rule.column)
        parts = [micros(name) for name in (rule.occurred, rule.received, rule.sent)]
        (occurred, received, sent), flags = zip(*parts, strict=True)
        known = _are_times(occurred) & _are_times(received) & _are_times(sent)
        return np.where(known, occurred + received - sent, TIMES.stop), np.logical_and.reduce(flags)

    def _kept(
        self,
        rows: pa.RecordBatch,
        parsed: Flags,
        kept: Flags,
        times: Micros | None,
        deleted: Flags,
    ) -> pa.RecordBatch:
        chosen = None if kept.all() else pa.array(kept)
        if not kept[parsed].all():
            rows = rows.filter(pa.array(kept[parsed]))
        more = [self._metadata(name) for name in self._spec.metadata]
        arrays = [
            *rows.columns,
            *(each if chosen is None else each.filter(chosen) for each in more),
        ]
        if times is not None:
            stamps = pa.array(times[kept]).view(TIME)
            if self._spec.time_column == EVENT_TIME.name:
                arrays.append(stamps)
            elif deleted.any():  # what is deleted is so from the time of its record on
                at = self._spec.schema.get_field_index(self._spec.time_column)
                arrays[at] = pc.if_else(
                    pa.array(deleted[kept]), stamps.cast(arrays[at].type), arrays[at]
                )
        if self._spec.key:
            arrays.append(pa.array(deleted[kept]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._spec.row_schema)

    def _metadata(self, name: str) -> pa.Array:
        if name == "partition":
            return pa.array(np.full(self._columns.num_rows, self._partition, np.int32))
        if name == "timestamp":
            return _instants(*self.stamps)
        return self._columns[name].cast(METADATA[name].type)

    def _rejected(self, classes: Classes, times: Micros | None) -> pa.RecordBatch:
        places = np.flatnonzero(classes > STRAGGLER)
        chosen = self._columns.take(pa.array(places))
        codes = classes[places]
        columns = self._spec.rule.columns if self._spec.rule else ()
        details = {**_DETAILS, MISSING: f"null in {', '.join(columns) or 'the timestamp'}"}
        happened = np.zeros(len(places), np.int64) if times is None else times[places]
        stamps, are_stamped = self.stamps
        return pa.RecordBatch.from_arrays(
            [
                pa.array([REASONS[code] for code in codes.tolist()], pa.string()),
                pa.array(
                    [
                        self._details.get(place) or details[code]
                        for place, code in zip(places.tolist(), codes.tolist(), strict=True)
                    ],
                    pa.string(),
                ),
                pa.array([self._spec.topic] * len(places), pa.string()),
                pa.array(np.full(len(places), self._partition, np.int32)),
                chosen["offset"],
                _instants(stamps[places], are_stamped[places]),
                _instants(happened, (codes == LATE) | (codes == FUTURE)),
                chosen["key"],
                chosen["value"],
            ],
            schema=REJECTED,
        )


def _micros(numbers: pa.Int64Array, scale: int) -> Stamps:
    """In microseconds, where each is of `scale`; those that are no times are not made ones."""
    present = _flags(numbers.is_valid())
    found = (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy()
    if scale > 1:
        found = np.clip(found, TIMES.start // scale - 1, TIMES.stop // scale) * scale
    return found, present


def _are_times(micros: Micros) -> Flags:
    return (micros >= TIMES.start) & (micros < TIMES.stop)


def _instants(micros: Micros, present: Flags) -> pa.TimestampArray:
    return pa.array(micros, pa.int64(), mask=~(present & _are_times(micros))).view(TIME)


def _flags(flags: pa.BooleanArray) -> Flags:
    found: NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False)
    return found
