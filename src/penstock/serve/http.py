"""Views over HTTP: their rows with filters and by pages, and their changes as they come.

GET /views                                   which there are
GET /views/revenue?country=NL&total.gte=100&limit=50&after=...
GET /views/revenue/changes                   server-sent events
"""

import json
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock import clock
from penstock.clock import instant_text
from penstock.errors import AppError, InvalidInput, ViewBehind
from penstock.serve.catalog import Kept
from penstock.serve.reading import MAX_ROWS, Filter, Page, ViewReader, is_kept, opened
from penstock.serve.refusals import OwnHosts, refuse_in_json
from penstock.serve.subscription import Event, Subscription

_OWN = frozenset({"limit", "after", "position", "timeout", "as_of"})  # what is no column
_MAX_QUERY = 8 * 1024  # bytes
_MAX_WAIT = 60_000
_MAX_WAITING = 16  # threads of their own, so that others are answered meanwhile
_MAX_SUBSCRIBERS = 100
_PARCEL = 1024 * 1024  # bytes of events that are sent at once, and one event more
_LOOK_EVERY = 0.1
_ALIVE_EVERY = 15.0

Wait = Callable[[str, str, str], None]
"""Returns once the view, by its name, has seen the positions; the last is the time limit."""
BatchAt = Callable[[ViewReader, Kept, str], int]
"""The batch after which a view was as at that time or position."""


def web_app(
    app: str, path: Path, log: str, *, wait: Wait, batch_at: BatchAt, stop: threading.Event
) -> FastAPI:
    """For the views in the file at `path`, whose topics are in `log`. Subscriptions end when `stop`
    is set."""
    bounded = [Depends(_check_length)]
    web = FastAPI(title=app, docs_url=None, redoc_url=None, dependencies=bounded)
    web.add_middleware(OwnHosts)
    refuse_in_json(web)
    waiting = anyio.CapacityLimiter(_MAX_WAITING)
    subscribers: set[object] = set()

    @web.get("/views")
    def views() -> list[dict[str, Any]]:
        if not is_kept(path):
            return []
        with opened(path) as reader:
            return [_about(kept) for kept in reader.views()]

    @web.get("/views/{name}")
    async def rows(
        request: Request,
        name: str,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 100,
        after: str | None = None,
        position: str | None = None,
        within: Annotated[str, Query(alias="timeout")] = "10s",
        as_of: str | None = None,
    ) -> Response:
        """Rows in the order of their keys. `after` is the `next` of the page before."""

        def answer() -> str:
            with opened(path) as reader:
                kept = reader.find(name)
                page = reader.page(
                    kept,
                    _filters(request),
                    limit=limit,
                    after=None if after is None else _place(after),
                    batch=None if as_of is None else batch_at(reader, kept, as_of),
                )
            return _as_json(kept, page)

        if position is not None:
            limit_ms = clock.duration_ms(within)
            if limit_ms > _MAX_WAIT:
                raise InvalidInput(f"nobody waits for {within}", hint="up to 60s")
            # The wait itself ends in time; a second later, it has not even begun.
            with anyio.move_on_after(limit_ms / 1_000 + 1) as scope:
                await run_sync(wait, name, position, within, limiter=waiting)
            if scope.cancelled_caught:
                raise ViewBehind(
                    f"{_MAX_WAITING} others wait for positions already", hint="come back later"
                )
        return Response(await run_sync(answer), media_type="application/json")

    @web.get("/views/{name}/changes")
    async def changes(
        name: str,
        start: str = "now",
        last_event_id: Annotated[str, Header()] = "",
    ) -> StreamingResponse:
        """From now on, with `start=beginning` from the first on, or after the event of an id."""
        if start not in ("now", "beginning"):
            raise InvalidInput(f"there is no start {start!r}", hint="now or beginning")

        def subscribe() -> Subscription:
            return Subscription(
                path, log, name, after=last_event_id, from_start=start == "beginning"
            )

        if len(subscribers) >= _MAX_SUBSCRIBERS:
            raise AppError(f"{_MAX_SUBSCRIBERS} follow views already", hint="come back later")
        place = object()
        subscribers.add(place)
        try:
            subscription = await run_sync(subscribe)
        except BaseException:
            subscribers.discard(place)
            raise

        def end() -> None:
            subscribers.discard(place)
            subscription.close()

        return _EventStream(_events(subscription, stop), end)

    return web


class _EventStream(StreamingResponse):
    def __init__(self, content: AsyncIterator[bytes], at_end: Callable[[], None]) -> None:
        """`at_end` is called in any case, also when nobody is there any more for the first event,
        so that `content` never begins; on a thread, as it may wait for a connection to end."""
        super().__init__(content, media_type="text/event-stream")
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(self._at_end)


async def _events(subscription: Subscription, stop: threading.Event) -> AsyncIterator[bytes]:
    heard = clock.monotonic()
    yield b": connected\n\n"
    while not stop.is_set():
        has_heard = False
        with closing(_parcels(subscription.poll())) as parcels:
            while not stop.is_set() and (found := await run_sync(next, parcels, b"")):
                yield found
                has_heard = True
        if has_heard:
            heard = clock.monotonic()
            continue
        if clock.monotonic() - heard > _ALIVE_EVERY:
            yield b": nothing new\n\n"
            heard = clock.monotonic()
        await anyio.sleep(_LOOK_EVERY)


def _parcels(events: Iterable[Event]) -> Generator[bytes, None, None]:
    found, size = [], 0
    for event in events:
        found.append(event.encode())
        size += len(found[-1])
        if size >= _PARCEL:
            yield b"".join(found)
            found, size = [], 0
    if found:
        yield b"".join(found)


def _check_length(request: Request) -> None:
    length = len(request.scope["query_string"])
    if length > _MAX_QUERY:
        raise InvalidInput(f"an address of {length} bytes", hint=f"up to {_MAX_QUERY}")


def _filters(request: Request) -> list[Filter]:
    """`column=value` and `column.gte=value`; a column called as one of the other parameters is
    asked for by `column.eq`."""
    found = []
    for name, value in request.query_params.multi_items():
        if name in _OWN:
            continue
        column, dot, operator = name.rpartition(".")
        found.append(Filter(column if dot else name, operator if dot else "eq", value))
    return found


def _place(token: str) -> bytes:
    try:
        return urlsafe_b64decode(token)
    except ValueError:
        raise InvalidInput(
            f"{token!r} is no place between two pages", hint="give the `next` of the page before"
        ) from None


def _about(kept: Kept) -> dict[str, Any]:
    return {
        "name": kept.name,
        "key": list(kept.key),
        "columns": [{"name": each.name, "type": each.type} for each in kept.columns],
        "topic": kept.topic,
        "batch": kept.batch,
        "time": instant_text(kept.at_ms) if kept.at_ms else None,
        "keeps_versions": kept.versions_ms is not None,
    }


def _as_json(kept: Kept, page: Page) -> str:
    rows = [kept.as_json(row) for row in page.rows]
    after = None if page.next is None else urlsafe_b64encode(page.next).decode()
    return json.dumps({"view": kept.name, "rows": rows, "next": after})
