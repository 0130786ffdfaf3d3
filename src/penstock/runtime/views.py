"""The views of an app as its readers have them, in its own process or in another one.

revenue = app.views["revenue"]
revenue.get("NL")
revenue.get("NL", after=position)          # once what was appended there has arrived
revenue.get("NL", as_of="2026-01-31T10:00")
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import clock
from penstock.clock import Duration, duration_ms
from penstock.errors import AppError, InvalidInput, ViewBehind
from penstock.events.record import Position
from penstock.runtime.folders import VIEWS_FILE, app_folder
from penstock.runtime.reach import Reach, Short, ends_in, hops_of, topics_above, wanted_of
from penstock.runtime.status import AppStatus
from penstock.serve.catalog import Kept
from penstock.serve.columns import python_value
from penstock.serve.moments import Moment, read_moment
from penstock.serve.positions import read_positions
from penstock.serve.reading import Filter, ViewReader, is_kept, opened, unknown_view

_LOOK_EVERY = 0.02

After = str | Position | Iterable[Position]


class Views:
    """The views of an app by their names, those that are kept now. Raises UnknownName."""

    def __init__(self, data: str | Path, app: str) -> None:
        self.data = Path(data)
        self.app = app
        self.path = app_folder(self.data, app) / VIEWS_FILE

    def __getitem__(self, name: str) -> "View":
        if not is_kept(self.path):
            raise unknown_view(name, [])
        with opened(self.path) as reader:
            reader.find(name)
        return View(self, name)

    def __iter__(self) -> Iterator[str]:
        if not is_kept(self.path):
            return iter(())
        with opened(self.path) as reader:
            return iter([each.name for each in reader.views()])

    def __contains__(self, name: str) -> bool:
        return name in list(self)

    def wait(self, names: Sequence[str], after: After, timeout: Duration = "10s") -> None:
        """Returns once these views have seen what stands at the positions, each of which has to
        lead to one of them at least. Raises ViewBehind when that takes longer."""
        if not names:
            raise InvalidInput("no view is read, so there is nothing to wait for", hint="name one")
        positions = _positions(after)
        limit_ms = duration_ms(timeout)
        deadline = clock.monotonic() + limit_ms / 1_000
        while self._is_starting():  # what its nodes read is not told before
            if clock.monotonic() >= deadline:
                raise ViewBehind(
                    f"app {self.app!r} is still starting", hint="--timeout or timeout= waits longer"
                )
            clock.sleep(_LOOK_EVERY)
        reaches = self._reaches(names, positions)
        while (short := self._short(reaches)) is not None:
            is_over = clock.monotonic() >= deadline
            if is_over or not self._runs():
                said = f"within {limit_ms / 1_000:g} s" if is_over and limit_ms else "yet"
                raise self._behind(positions, short, said)
            clock.sleep(_LOOK_EVERY)

    def _is_starting(self) -> bool:
        return self._runs() and any(not node.inputs for node in self.status().nodes)

    def _runs(self) -> bool:
        return self.status().life() not in ("stopped", "gone")

    def _behind(self, positions: Sequence[Position], short: Short, said: str) -> ViewBehind:
        return ViewBehind(
            f"{', '.join(map(str, positions))} has not been seen {said}: {short}",
            hint=f"penstock why {short.node} says more; --timeout or timeout= waits longer"
            if self._runs()
            else f"app {self.app!r} does not run; penstock run starts it",
        )

    def status(self) -> AppStatus:
        """What the app tells of itself. Raises AppError when it has never run."""
        found = AppStatus.read(app_folder(self.data, self.app))
        if found is None:
            raise AppError(f"app {self.app!r} has not run in {self.data}", hint="penstock run")
        return found

    def _reaches(self, names: Sequence[str], positions: Sequence[Position]) -> dict[str, Reach]:
        status = self.status()
        hops = hops_of(self.data, status)
        ends = ends_in(log_of(status) or str(self.data))
        above = {name: topics_above(hops, name) for name in names}
        for position in positions:
            if not any(position.topic in topics for topics in above.values()):
                made_of = sorted({topic for topics in above.values() for topic in topics})
                raise InvalidInput(
                    f"nothing of topic {position.topic!r} gets into {', '.join(names)}",
                    hint=f"it is made of: {', '.join(made_of)}",
                )
        wanted = wanted_of(positions, ends)
        return {
            name: Reach(hops, {t: each for t, each in wanted.items() if t in topics}, name, ends)
            for name, topics in above.items()
        }

    def batch_at(self, reader: ViewReader, kept: Kept, when: Moment) -> int:
        """The batch after which a view was as at that moment. Raises InvalidInput, ViewBehind."""
        found = read_moment(when)
        if isinstance(found, Position) and kept.versions_ms is not None:
            # What this reader's table has not seen has made no state in it yet.
            reach = self._reaches([kept.name], [found])[kept.name]
            if short := reach.short_of_table(kept.topic, kept.offsets):
                raise self._behind([found], short, "yet")
        return reader.batch_at(kept, found)

    def _short(self, reaches: dict[str, Reach]) -> Short | None:
        with opened(self.path) as reader:
            for name, reach in reaches.items():
                kept = reader.find(name)
                if short := reach.short_of_table(kept.topic, kept.offsets):
                    return short
        return None


class View:
    """One view, as it is at the moment of each call."""

    def __init__(self, views: Views, name: str) -> None:
        self._views = views
        self.name = name

    def get(
        self,
        key: Any,
        *,
        after: After | None = None,
        timeout: Duration = "10s",
        as_of: Moment | None = None,
    ) -> dict[str, Any] | None:
        """The row of a key, None where there is none.

        `key` is the value of the key's column, or a dictionary or a sequence where it has several.
        With `after`, waits until the view has seen what was appended there, and raises ViewBehind
        when that takes longer than `timeout`. With `as_of`, the row as it was, if the view keeps
        versions; a time without a zone is meant in the machine's own, and "10m" is ten minutes
        ago. Inside arrays, maps and structs, values are as in JSON.
        """
        if after is not None:
            self._views.wait([self.name], after, timeout)
        with opened(self._views.path) as reader:
            kept = reader.find(self.name)
            batch = None if as_of is None else self._views.batch_at(reader, kept, as_of)
            row = reader.row(kept, key_bytes(kept, key), batch=batch)
        return None if row is None else _as_dict(kept, row)

    def rows(self, **equal: Any) -> Iterator[dict[str, Any]]:
        """All rows in the order of their keys, or those with these values in these columns, where
        None is null."""
        filters = [Filter(name, "eq", _written(value)) for name, value in equal.items()]
        with opened(self._views.path) as reader:
            kept = reader.find(self.name)
            for row in reader.scan(kept, filters):
                yield _as_dict(kept, row)


def _written(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bytes():
            return b64encode(value).decode()
        case _:
            return str(value)


def _as_dict(kept: Kept, row: Sequence[Any]) -> dict[str, Any]:
    return {
        column.name: python_value(value, column.form)
        for column, value in zip(kept.columns, row, strict=True)
    }


def log_of(status: AppStatus) -> str:
    """Where the sources of an app read its log, "" if it has none."""
    sources = (each.source for node in status.nodes for each in node.inputs)
    return next((each["log"] for each in sources if "log" in each), "")


def key_bytes(kept: Kept, key: Any) -> bytes:
    """The key of the view's records for these values. Raises InvalidInput."""
    import pyarrow as pa

    from penstock.events.schema import parse_schema
    from penstock.streams.source.keys import encode_keys

    match key:
        case Mapping():
            values = dict(key)
        case list() | tuple():
            values = dict(zip(kept.key, key, strict=False))
        case _:
            values = {kept.key[0]: key}
    if set(values) != set(kept.key):
        raise InvalidInput(
            f"{key!r} is no key of view {kept.name!r}",
            hint=f"it is made of: {', '.join(kept.key)}",
        )
    schema = parse_schema(kept.schema)
    fields = pa.schema([schema.field(name) for name in kept.key])
    try:
        row = pa.RecordBatch.from_pylist([values], schema=fields)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput(f"{key!r} is no key of view {kept.name!r}: {error}") from error
    encoded: bytes = encode_keys(row, kept.key)[0].as_py()
    return encoded


def _positions(after: After) -> list[Position]:
    match after:
        case str():
            return read_positions(after)
        case Position():
            return [after]
        case _:
            return list(after)
