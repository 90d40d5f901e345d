"""The application: checks each request, and lets its route answer it."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Routed
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from core_sdk._ground.decoding import convert, json_decoder
from core_sdk._ground.records import plain
from core_sdk._interfaces.server.connections import vouch
from core_sdk._interfaces.server.errors import RequestError, refusal_of
from core_sdk._interfaces.server.events import Events
from core_sdk._interfaces.server.openapi import describe
from core_sdk._interfaces.server.pages import PageFile, answer_with_file
from core_sdk._interfaces.server.route import Route
from core_sdk._interfaces.server.routes.table import ROUTES
from core_sdk._interfaces.server.security import HEADERS, MAX_BODY_BYTES, Gate
from core_sdk._interfaces.server.shared_view import SharedView

PREFIX = "/api/v1"
FILES = ("/file", "/archive")
"""The ends of the addresses of files that a browser saves by itself."""
_PARTS_HEADER = "x-core-sdk-parts"
"""With 1, as the page sends it, a question is answered from what was read so far."""
_PATIENCE_S = 0.1
_PAUSE_S = 0.01


class App:
    """An ASGI application."""

    def __init__(self, shared: SharedView, gate: Gate, page: Mapping[str, PageFile], max_streams: int = 100) -> None:
        self._shared = shared
        self._gate = gate
        self._page = page
        self._events = Events(shared, max_streams)
        routes = [
            Routed(f"{PREFIX}/session", self._answer_session),
            Routed(f"{PREFIX}/ticket", self._answer_ticket),
            Routed(f"{PREFIX}/events", self._answer_events),
            Routed(f"{PREFIX}/openapi.json", self._answer_openapi),
            *(Routed(PREFIX + one.path, functools.partial(self._answer, one), methods=[one.method]) for one in ROUTES),
        ]
        self._router = Router(routes, redirect_slashes=False)
        self._app = ExceptionMiddleware(self._pass_gate, {Exception: answer_failure, HTTPException: answer_failure})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # the router raises its errors only within an application
        await self._app(scope, receive, confined(send))

    async def end(self) -> None:
        """Ends the streams of open pages, so that the server need not cut them off."""
        await self._events.end()

    async def _pass_gate(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with a file of the page, or lets the router answer, if the gate allows it."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        request = Request(scope, receive)
        path: str = scope["path"]
        self._gate.check_address(request.headers)
        if (file := self._page.get(path)) is not None and request.method in ("GET", "HEAD"):
            if self._gate.has_own_name(request.headers):
                vouch(scope)
            is_known = self._gate.is_known(request.headers)
            await answer_with_file(path, file, request.headers, is_known=is_known)(scope, receive, send)
            return
        ticket = request.query_params.get("ticket") if path.endswith(FILES) else None
        self._gate.check(request.method, request.headers, ticket)
        vouch(scope)
        await self._router(scope, receive, send)

    async def _answer_session(self, _request: Request) -> Response:
        return json_answer({"key": self._gate.session_key})

    async def _answer_ticket(self, _request: Request) -> Response:
        return json_answer({"ticket": self._gate.ticket()})

    async def _answer_events(self, request: Request) -> Response:
        await self._await_first_look(math.inf, takes_parts=True)
        return self._events.answer(request.headers.get("last-event-id"))

    async def _answer_openapi(self, _request: Request) -> Response:
        return json_answer(describe(ROUTES, PREFIX))

    async def _answer(self, route: Route, request: Request) -> Response:
        takes_parts = request.headers.get(_PARTS_HEADER) == "1"
        await self._await_first_look(_PATIENCE_S if route.path == "/home" else math.inf, takes_parts=takes_parts)
        is_reading = self._shared.reading is not None
        self._shared.check_home()
        arguments = {name: _converted(value, route, name) for name, value in request.path_params.items()}
        if "query" in route.hints:
            arguments["query"] = convert(_query(request, route), route.query, strict=False)
        if "body" in route.hints:
            arguments["body"] = json_decoder(route.hints["body"])(await read_json(request) or b"{}")
        try:
            answer = await run_in_threadpool(route.ask, self._shared, **arguments)
        except Exception as error:
            if is_reading and refusal_of(error).status in (400, 404):  # what it lacks may be among the other records
                raise RequestError(503, "reading", "this is not read yet", "The records are being read.") from error
            raise
        return answer if isinstance(answer, Response) else json_answer(answer)

    async def _await_first_look(self, patience_s: float, *, takes_parts: bool) -> None:
        """Waits for the first look, or for a part of it, without a thread.

        There are few threads, and `/home` needs one to tell how far it is.
        """
        deadline = time.monotonic() + patience_s
        try:
            while not self._is_readable(takes_parts) and time.monotonic() < deadline:
                await asyncio.sleep(_PAUSE_S)
        except asyncio.CancelledError as error:
            raise RequestError(503, "server_ends", "the server ends before the records are read") from error

    def _is_readable(self, takes_parts: bool) -> bool:
        return self._shared.reading is None or (takes_parts and self._shared.has_part)


def confined(send: Send) -> Send:
    """Returns a function that sends what it is given, with the headers that protect each answer."""

    async def send_confined(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_confined


async def answer_failure(_request: Request, error: Exception) -> Response:
    """Returns the response to a request that has failed with this error."""
    refusal = refusal_of(error)
    return json_answer(refusal.failure, refusal.status, refusal.headers)


def _converted(value: str, route: Route, name: str) -> Any:
    try:
        return convert(value, route.path_types[name], strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(400, "bad_parameter", f"{name} in the address: {error}") from error


def _query(request: Request, route: Route) -> dict[str, Any]:
    given = {name: request.query_params.getlist(name) for name in request.query_params if name != "ticket"}
    lists = route.lists
    if any(len(values) > 1 and name not in lists for name, values in given.items()):
        raise RequestError(400, "bad_parameter", "a parameter is given twice")
    return {name: values if name in lists else values[0] for name, values in given.items()}


async def read_json(request: Request) -> bytes:
    """Returns the body of a request. Raises `RequestError` if it is too large, or not said to be JSON."""
    if (request.headers.get("content-type") or "").partition(";")[0].strip() != "application/json":
        raise RequestError(415, "not_json", "the body must be JSON", "Send Content-Type: application/json.")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MAX_BODY_BYTES:
            raise RequestError(413, "too_large", f"the body has more than {MAX_BODY_BYTES} bytes")
    return bytes(content)


def json_answer(answer: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a response whose body is the JSON of these records."""
    return Response(msgspec.json.encode(plain(answer)), status, headers, media_type="application/json")
