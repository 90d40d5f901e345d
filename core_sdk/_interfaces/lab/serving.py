"""Serves a lab: listens, and runs until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from core_sdk._interfaces.lab.door import Door
from core_sdk._interfaces.lab.folder import Lab
from core_sdk._interfaces.lab.routes import WriterRoutes
from core_sdk._interfaces.server.connections import protocol_of_a_server
from core_sdk._interfaces.server.pages import read_page
from core_sdk._interfaces.server.serving import LOOPBACK_NAMES, is_loopback, listen

MOST_CONNECTIONS = 4096
_GRACE_S = 10
"""How long requests may take that are being answered when the server is told to end."""


@dataclass(frozen=True)
class Listening:
    """Where a lab's server listens."""

    host: str
    port: int

    @property
    def hosts(self) -> list[str]:
        """The names in `Host` under which it is reached without a proxy."""
        return [f"{name}:{self.port}" for name in (*LOOPBACK_NAMES, _shown(self.host))]

    @property
    def url(self) -> str:
        return f"http://{_shown(self.host)}:{self.port}/"


def parse_listen(text: str) -> tuple[str, int]:
    """Returns the host and the port of HOST:PORT. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8700")
    return host, int(port)


def serve_lab(
    lab: Lab,
    listen_at: str,
    *,
    writer_routes: WriterRoutes | None = None,
    on_listening: Callable[[Listening], None],
) -> None:
    """Serves the lab, and blocks until Ctrl-C or SIGTERM. Raises `ValueError` or `CoreSDKError`."""
    host, port = parse_listen(listen_at)
    if not is_loopback(host):
        raise ValueError(f"at {host} other machines would read what is sent: tokens and records are not encrypted")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(each) for each in listen(host, port)]
        listening = Listening(host, sockets[0].getsockname()[1])
        door = Door(lab, read_page(), listening.hosts, writer_routes)
        stack.callback(door.workspaces.close)
        server = make_lab_server(door, lambda: on_listening(listening))
        with contextlib.suppress(KeyboardInterrupt):  # the server ends well, and raises it again
            server.run(sockets=sockets)


def make_lab_server(door: Door, on_started: Callable[[], None] = lambda: None) -> uvicorn.Server:
    config = uvicorn.Config(
        door,
        log_level="warning",
        access_log=False,  # the log would contain tickets
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
        ws="none",
        http=protocol_of_a_server(),
        loop="asyncio",
        lifespan="off",
    )
    return _LabServer(config, door, on_started)


class _LabServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, door: Door, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._door = door
        self._on_started = on_started
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._watching = asyncio.create_task(self._door.watch())
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._door.workspaces.end()
        await super().shutdown(sockets)
        if self._watching is not None:
            self._watching.cancel()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
