"""A visitor of the server: requests to the application in this process, header by header."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.types import ASGIApp

from core_sdk._home import Home
from core_sdk._interfaces.server.app import App
from core_sdk._interfaces.server.pages import PageFile
from core_sdk._interfaces.server.security import TokenGate
from core_sdk._interfaces.server.shared_view import SharedView

TOKEN = "0123456789abcdef0123"
PORT = 8650
HOST = f"127.0.0.1:{PORT}"
HOSTS = ("127.0.0.1", "localhost", "[::1]")
OWN_NAME = "0123456789abcdef.localhost"
PAGE = {
    "/": PageFile(b"<!doctype html>", "text/html; charset=utf-8", '"1"'),
    "/main.js": PageFile(b"1", "text/javascript", '"2"'),
}

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.content)

    @property
    def problem(self) -> str:
        return str(self.json["error"]["kind"])


class Visitor:
    """Calls the application without a socket, so that requests may be malformed."""

    def __init__(self, home: Home, *, can_act: bool = True, waits: bool = True) -> None:
        self.shared = SharedView(home, can_act=can_act)
        if waits:
            self.shared.wait()  # what the test does next comes after the first look
        self.app = App(self.shared, TokenGate(TOKEN, PORT, HOSTS, OWN_NAME), PAGE)

    def close(self) -> None:
        self.shared.close()

    def get(self, target: str, **headers: str) -> Answer:
        return self.send("GET", target, headers=headers)

    def question(self, path: str, **query: object) -> Any:
        """Returns the JSON of a successful answer."""
        self.shared.forget()
        answer = self.get(target_of(path, **query))
        assert answer.status == 200, answer.content
        return answer.json

    def act(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        headers = {"x_core_sdk_action": "1", "content_type": "application/json"}
        return self.send("POST", f"/api/v1{path}", headers=headers, body=msgspec.json.encode(body or {}))

    def send(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        with_token: bool = True,
    ) -> Answer:
        """`_` in the name of a header stands for `-`. A header that is empty is not sent."""
        named = {"host": HOST} | ({"authorization": f"Bearer {TOKEN}"} if with_token else {}) | dict(headers or {})
        raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in named.items() if value]
        return self.send_raw(method, target, raw, body)

    def send_raw(self, method: str, target: str, headers: RawHeaders, body: bytes = b"") -> Answer:
        # In a thread of its own: this one has a loop that runs once a browser was steered from it.
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(asyncio.run, request(self.app, method, target, headers, body)).result()


def target_of(path: str, **query: object) -> str:
    given = [(name, one) for name, value in query.items() for one in (value if isinstance(value, list) else [value])]
    pairs = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in given)
    return f"/api/v1{path}" + (f"?{pairs}" if pairs else "")


async def request(
    app: ASGIApp, method: str, target: str, headers: RawHeaders, body: bytes, client: str = "127.0.0.1"
) -> Answer:
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "headers": list(headers),
        "server": ("127.0.0.1", PORT),
        "client": (client, 1),
    }
    sent: list[MutableMapping[str, Any]] = []
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if parts:
            return parts.pop()
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))
