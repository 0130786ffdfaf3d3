"""A range of a partition as typed rows, each classed; what cannot be a row, with the reason."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import InvalidInput
from penstock.events.formats import Format, format_for
from penstock.streams.source.classes import (
    MISSING,
    ON_TIME,
    REASONS,
    STRAGGLER,
    UNPARSABLE,
    Micros,
    Promise,
    classify,
)
from penstock.streams.source.keys import key_rows
from penstock.streams.source.progress import Progress
from penstock.streams.source.punctuation import read_punctuation
from penstock.streams.source.ranges import Range
from penstock.streams.source.spec import EVENT_TIME, METADATA, REJECTED, TIME, SourceSpec
from penstock.streams.source.topic import AppendTimes, SourceTopic

_NO_VALUE = "the record has no value"


class RowReader:
    def __init__(self, spec: SourceSpec) -> None:
        self.spec = spec
        self._format = format_for(spec.format, spec.schema, spec.format_options)

    def read(self, topic: SourceTopic, wanted: Range) -> Iterator[pa.RecordBatch]:
        """The rows, in the partition's order; moves the range's progress to its end."""
        progress, partition = wanted.progress, wanted.partition
        appended = None
        if self.spec.rule is not None and self.spec.rule.guard is not None:
            appended = topic.append_times(partition, progress.at, wanted.until)
        for columns in topic.columns(partition, progress.at, wanted.until):
            chunk = _Chunk(columns, self.spec, partition)
            rows = chunk.rows(self._format, progress, self._latest(chunk, appended, wanted))
            if rows.num_rows:
                yield rows
        progress.at = wanted.until

    def _latest(
        self, chunk: "_Chunk", appended: AppendTimes | None, wanted: Range
    ) -> Micros | int | None:
        """The highest event time that is not from the future, in microseconds."""
        rule = self.spec.rule
        if rule is None or rule.guard is None:
            return None
        planned = wanted.planned * 1_000 + rule.guard
        if not appended:
            return planned
        offsets, times = np.array(appended, np.int64).T
        places = np.searchsorted(offsets, chunk.offsets, side="right") - 1
        return np.where(places >= 0, times[places] * 1_000 + rule.guard, planned)


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
        if not columns["value"].null_count:
            return columns
        taken = np.ones(columns.num_rows, np.bool_)
        for index in np.flatnonzero(columns["value"].is_null().to_numpy(zero_copy_only=False)):
            headers = columns["headers"][int(index)].as_py()
            try:
                promise = read_punctuation([(each["key"], each["value"]) for each in headers])
            except InvalidInput as broken:
                self._details[int(index) - len(self._promises)] = broken.message
                continue
            if promise is not None:
                taken[index] = False
                self._promises.append(Promise(int(index) - len(self._promises), *promise))
        return columns.filter(pa.array(taken)) if self._promises else columns

    def rows(self, form: Format, progress: Progress, latest: Micros | int | None) -> pa.RecordBatch:
        count = self._columns.num_rows
        values = self._columns["value"]
        parsed = np.ones(count, np.bool_)
        deleted = np.zeros(count, np.bool_)
        if values.null_count:
            absent = values.is_null().to_numpy(zero_copy_only=False)
            if self._spec.key:
                deleted = absent
                deleted[list(self._details)] = False  # broken punctuation deletes nothing
            else:
                for place in np.flatnonzero(absent):
                    self._details.setdefault(int(place), _NO_VALUE)
            parsed &= ~absent
        here = np.flatnonzero(parsed)
        whole = len(here) == count
        decoded = form.decode(values if whole else values.filter(pa.array(parsed)))
        for position, detail in decoded.refused:
            index = int(position if whole else here[position])
            self._details[index] = detail
            parsed[index] = False
        rows = decoded.rows
        if deleted.any():
            rows, parsed = self._with_deleted(rows, parsed, deleted)

        classes, times = self._classes(rows, parsed, progress, latest)
        kept = classes <= STRAGGLER
        progress.marks += len(self._promises)
        progress.read += count
        progress.kept += int(kept.sum())
        for code, reason in REASONS.items():
            if number := int((classes == code).sum()):
                progress.rejected[reason] += number
        if self._spec.rejected:
            return self._rejected(classes, times)
        return self._kept(rows, parsed, kept, times, deleted)

    def _with_deleted(
        self, rows: pa.RecordBatch, parsed: NDArray[np.bool_], deleted: NDArray[np.bool_]
    ) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
        """The rows with those that are deleted among them, which have nothing but their key."""
        places = np.flatnonzero(deleted)
        found = key_rows(
            self._columns["key"].take(pa.array(places)), self._spec.schema, self._spec.key
        )
        for position, detail in found.refused:
            self._details[int(places[position])] = detail
            deleted[places[position]] = False
        both = parsed | deleted
        order = np.argsort(np.concatenate((np.flatnonzero(parsed), np.flatnonzero(deleted))))
        merged = pa.Table.from_batches([rows, found.rows]).take(pa.array(order)).combine_chunks()
        batches = merged.to_batches()
        return (batches[0] if batches else rows), both

    def _classes(
        self,
        rows: pa.RecordBatch,
        parsed: NDArray[np.bool_],
        progress: Progress,
        latest: Micros | int | None,
    ) -> tuple[NDArray[np.uint8], Micros | None]:
        count = len(parsed)
        rule = self._spec.rule
        if rule is None:
            for promise in self._promises:
                progress.promise(promise.producer, promise.time)
            classes = np.where(parsed, ON_TIME, UNPARSABLE).astype(np.uint8)
            return classes, None
        times = np.zeros(count, np.int64)
        present = np.zeros(count, np.bool_)
        times[parsed], present[parsed] = self._event_times(rows, parsed)
        classes = classify(times, present, latest, rule, progress, self._promises)
        classes[~parsed] = UNPARSABLE
        for index in np.flatnonzero(classes == MISSING):
            self._details[int(index)] = f"{', '.join(rule.columns) or 'the timestamp'} is null"
        return classes, times

    def _event_times(
        self, rows: pa.RecordBatch, parsed: NDArray[np.bool_]
    ) -> tuple[Micros, NDArray[np.bool_]]:
        rule = self._spec.rule
        assert rule is not None
        stamps = self._columns["timestamp"].cast(TIME)
        if not parsed.all():
            stamps = stamps.filter(pa.array(parsed))

        def micros(name: str | None) -> pa.Array:
            if name is None:
                return stamps.cast(pa.int64())
            column = rows[name]
            if pa.types.is_timestamp(column.type):
                return column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64())
            return pc.multiply(column, 1_000)

        if rule.occurred is not None:
            lag = pc.subtract(micros(rule.received), micros(rule.sent))
            found = pc.add(micros(rule.occurred), lag)
        else:
            found = micros(rule.column)
        if self._spec.key and rule.column is not None:  # one that is deleted has its record's time
            found = pc.coalesce(found, stamps.cast(pa.int64()))
        present = found.is_valid().to_numpy(zero_copy_only=False)
        return found.fill_null(0).to_numpy(), present

    def _kept(
        self,
        rows: pa.RecordBatch,
        parsed: NDArray[np.bool_],
        kept: NDArray[np.bool_],
        times: Micros | None,
        deleted: NDArray[np.bool_],
    ) -> pa.RecordBatch:
        every = kept.all()
        chosen = None if every else pa.array(kept)
        if not kept[parsed].all():
            rows = rows.filter(pa.array(kept[parsed]))
        arrays = list(rows.columns)
        more = [self._metadata(name) for name in self._spec.metadata]
        arrays += more if every else [column.filter(chosen) for column in more]
        if self._spec.time_column == EVENT_TIME.name:
            assert times is not None
            arrays.append(pa.array(times[kept]).view(TIME))
        if self._spec.key:
            arrays.append(pa.array(deleted[kept]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._spec.row_schema)

    def _metadata(self, name: str) -> pa.Array:
        if name == "partition":
            return pa.array(np.full(self._columns.num_rows, self._partition, np.int32))
        return self._columns[name].cast(METADATA[name].type)

    def _rejected(self, classes: NDArray[np.uint8], times: Micros | None) -> pa.RecordBatch:
        places = np.flatnonzero(classes > STRAGGLER)
        chosen = self._columns.take(pa.array(places))
        known = [code not in (MISSING, UNPARSABLE) for code in classes[places]]
        happened = [
            int(times[place]) if is_known and times is not None else None
            for place, is_known in zip(places, known, strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([REASONS[int(code)] for code in classes[places]], pa.string()),
                pa.array([self._details.get(int(place), "") for place in places], pa.string()),
                pa.array([self._spec.topic] * len(places), pa.string()),
                pa.array([self._partition] * len(places), pa.int32()),
                chosen["offset"],
                chosen["timestamp"].cast(TIME),
                pa.array(happened, pa.int64()).cast(TIME),
                chosen["key"],
                chosen["value"],
            ],
            schema=REJECTED,
        )
