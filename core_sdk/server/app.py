"""The application: checks each request, and lets its route answer it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from core_sdk.records import plain
from core_sdk.server.connections import vouch
from core_sdk.server.errors import Failure, Problem, RequestError, failure_of
from core_sdk.server.events import Events
from core_sdk.server.openapi import describe
from core_sdk.server.pages import PageFile
from core_sdk.server.records import Records
from core_sdk.server.route import Route
from core_sdk.server.routes.table import ROUTES
from core_sdk.server.security import HEADERS, MAX_BODY_BYTES, Gate, Headers, Refusal

PREFIX = "/api/v1"
_FILES = ("/file", "/archive")
"""The ends of the addresses of files that a browser saves by itself."""
_PATIENCE_S = 0.1
_PAUSE_S = 0.01

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class App:
    """An ASGI application."""

    def __init__(self, records: Records, gate: Gate, page: Mapping[str, PageFile]) -> None:
        self._records = records
        self._gate = gate
        self._page = page
        self._paths = _Paths(ROUTES)
        self._events = Events(records)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            return  # a WebSocket, which we do not speak: the server closes it
        response = await self._answer(Request(scope, receive))
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def end(self) -> None:
        """Ends the streams of open pages, so that the server need not cut them off."""
        await self._events.end()

    async def _answer(self, request: Request) -> Response:
        headers = Headers(request.scope)
        path: str = request.scope["path"]
        try:
            self._gate.check_address(headers)
            if (file := self._page.get(path)) is not None and request.method in ("GET", "HEAD"):
                if self._gate.has_own_name(headers):
                    vouch(request.scope)
                return self._page_file(file, headers)
            ticket = request.query_params.get("ticket") if path.endswith(_FILES) else None
            self._gate.check(request.method, headers, ticket)
            vouch(request.scope)
            if not path.startswith(f"{PREFIX}/"):
                raise RequestError(404, "not_found", "there is nothing at this address", "The page is at /.")
            return await self._answer_question(request, path.removeprefix(PREFIX))
        except Refusal as refusal:
            problem = Problem(refusal.kind, refusal.message, refusal.hint)
            response = _json(Failure(problem), refusal.status)
            response.headers.update(refusal.headers)
            return response
        except Exception as error:  # noqa: BLE001  (every failure is answered)
            status, failure = failure_of(error)
            return _json(failure, status)

    def _page_file(self, file: PageFile, headers: Headers) -> Response:
        if file.media_type.startswith("text/html"):
            # Browsers neither list nor suggest an address that was refused, and this one may have the token behind `#`.
            return Response(file.content, 200 if self._gate.is_known(headers) else 401, media_type=file.media_type)
        # A browser asks for the icon again whenever the address changes.
        is_icon = file.media_type == "image/svg+xml"
        kept = {"etag": file.etag, "cache-control": "private, max-age=86400" if is_icon else "no-cache"}
        if file.etag in headers.all("if-none-match"):
            return Response(status_code=304, headers=kept)
        return Response(file.content, media_type=file.media_type, headers=kept)

    async def _answer_question(self, request: Request, path: str) -> Response:
        if path == "/session" and request.method == "GET":
            return _json({"key": self._gate.session_key})
        if path == "/ticket" and request.method == "GET":
            return _json({"ticket": self._gate.ticket()})
        await self._await_first_look(_PATIENCE_S if path == "/home" else math.inf)
        if path == "/events" and request.method == "GET":
            return self._events.answer(request.headers.get("last-event-id"))
        if path == "/openapi.json" and request.method == "GET":
            return _json(describe(ROUTES, PREFIX))
        route, in_path = self._paths.find(request.method, path)
        arguments = msgspec.convert(in_path, dict[str, Any], strict=False)
        arguments = {name: _converted(value, route.path_types[name], name) for name, value in arguments.items()}
        if "query" in route.hints:
            arguments["query"] = msgspec.convert(_query(request, route), route.query, strict=False)
        if "body" in route.hints:
            arguments["body"] = msgspec.json.decode(await _body(request) or b"{}", type=route.hints["body"])
        answer = await run_in_threadpool(route.ask, self._records, **arguments)
        return answer if isinstance(answer, Response) else _json(answer)

    async def _await_first_look(self, patience_s: float) -> None:
        """Waits for the first look, without a thread: there are few, and `/home` needs one to tell how far it is."""
        deadline = time.monotonic() + patience_s
        try:
            while self._records.reading is not None and time.monotonic() < deadline:
                await asyncio.sleep(_PAUSE_S)
        except asyncio.CancelledError as error:
            raise RequestError(503, "server_ends", "the server ends before the records are read") from error


class _Paths:
    """Finds the route of a path, part by part."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [(route, route.path.split("/")) for route in routes]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        parts = path.split("/")
        found = [route for route, wanted in self._routes if _fits(parts, wanted)]
        if not found:
            raise RequestError(404, "not_found", "there is nothing at this address", f"{PREFIX}/openapi.json has all.")
        for route in found:
            if method == route.method or (method == "HEAD" and route.method == "GET"):
                wanted = route.path.split("/")
                return route, {name[1:-1]: part for name, part in zip(wanted, parts, strict=True) if name[:1] == "{"}
        raise RequestError(405, "method_not_allowed", f"{method} is not possible here")


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if len(parts) != len(wanted):
        return False
    return all(part == name or (name[:1] == "{" and part != "") for part, name in zip(parts, wanted, strict=True))


def _converted(value: str, kind: Any, name: str) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(400, "bad_parameter", f"{name} in the address: {error}") from error


def _query(request: Request, route: Route) -> dict[str, Any]:
    given = {name: request.query_params.getlist(name) for name in request.query_params if name != "ticket"}
    lists = route.lists
    if any(len(values) > 1 and name not in lists for name, values in given.items()):
        raise RequestError(400, "bad_parameter", "a parameter is given twice")
    return {name: values if name in lists else values[0] for name, values in given.items()}


async def _body(request: Request) -> bytes:
    if (request.headers.get("content-type") or "").partition(";")[0].strip() != "application/json":
        raise RequestError(415, "not_json", "the body must be JSON", "Send Content-Type: application/json.")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MAX_BODY_BYTES:
            raise RequestError(413, "too_large", f"the body has more than {MAX_BODY_BYTES} bytes")
    return bytes(content)


def _json(answer: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(plain(answer)), status, media_type="application/json")


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
