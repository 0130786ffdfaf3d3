"""Errors over HTTP: each is JSON with `error` and `hint`, whoever finds it.

That is the routes, the framework around them, or the server before there is a request at all.
"""

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.errors import InvalidInput, PenstockError, UnknownName, ViewBehind

HOSTS = frozenset({"127.0.0.1", "localhost"})  # others are pages from elsewhere that try their luck
_STATUS: Mapping[type[PenstockError], int] = {UnknownName: 404, InvalidInput: 400, ViewBehind: 504}


def refusal(
    status: int, error: str, hint: str = "", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": error, "hint": hint}, status, headers)


def refuse_in_json(web: FastAPI) -> None:
    """Every error that its routes raise, and that of an address which has no route."""

    @web.exception_handler(PenstockError)
    def refuse(request: Request, error: PenstockError) -> JSONResponse:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 503)
        return refusal(status, error.message, error.hint)

    @web.exception_handler(RequestValidationError)
    def refuse_parameter(request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = error.errors()[0]
        return refusal(400, f"{wrong['loc'][-1]}: {wrong['msg']}")

    @web.exception_handler(HTTPException)
    def refuse_address(request: Request, error: HTTPException) -> JSONResponse:
        path, method = request.url.path, request.method
        said, hint = str(error.detail), ""
        if error.status_code == HTTPStatus.NOT_FOUND:
            said, hint = f"there is nothing at {path}", "GET /views says which views there are"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            said, hint = f"{method} is not for {path}", "views are only read here, with GET"
        return refusal(error.status_code, said, hint, error.headers)

    @web.exception_handler(Exception)
    def fail(request: Request, error: Exception) -> JSONResponse:
        """What is raised is logged by the server, and not told to everybody."""
        return refusal(500, "the answer failed", "the log of the app says why")


class OwnHosts:
    """Refuses what is not asked of this machine by its own name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            name, _, port = host.lower().partition(":")
            if name not in HOSTS or not (port or "0").isdigit():
                app = refusal(400, f"there is no host {host!r} here", f"ask {min(HOSTS)}")
        await app(scope, receive, send)
