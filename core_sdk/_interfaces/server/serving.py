"""Serves a home: finds a port, makes a token, and runs until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import uvicorn
from starlette.types import ASGIApp

from core_sdk._home import Home
from core_sdk._interfaces.server.app import App
from core_sdk._interfaces.server.connections import MOST_CONNECTIONS, protocol_of_a_server
from core_sdk._interfaces.server.pages import read_page
from core_sdk._interfaces.server.security import LEAST_TOKEN_LENGTH, TokenGate
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk.errors import CoreSDKError

DEFAULT_PORT = 8650
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_NUM_TRIED = 100
_TOKEN_BYTES = 24
_NAME_BYTES = 16


@dataclass(frozen=True)
class Address:
    """The address at which a server listens, with its token."""

    host: str
    port: int
    token: str
    own_name: str = ""
    """A name of this machine that is used by this server only."""

    @property
    def url(self) -> str:
        """The URL of the page, with the token, which allows reading and acting."""
        return f"http://{self.own_name or _shown(self.host)}:{self.port}/#token={self.token}"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None) -> None:
    """Raises `ValueError` for a bad token, or for an address that other machines reach without a chosen token."""
    if token is not None and (len(token) < LEAST_TOKEN_LENGTH or not token.isascii() or not token.isalnum()):
        raise ValueError(f"a token has at least {LEAST_TOKEN_LENGTH} letters or digits, and nothing else")
    if not is_loopback(host) and token is None:
        raise ValueError(
            f"--host {host} lets other machines reach this home: its metrics, logs, configurations and checkpoints; "
            "whoever has the token can pause, resume, kill and delete, and the connection is not encrypted. Give a "
            "token of your own with --token, or leave --host out and reach this machine through `ssh -L`"
        )


def serve(
    home: Home,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    can_act: bool = True,
    until: IO[str] | None = None,
    on_listening: Callable[[Address], None],
) -> None:
    """Serves the home, and blocks until Ctrl-C, SIGTERM or the end of the input `until`.

    Without a `port`, it takes the default one, or the next that is free.

    Raises `ValueError` or `CoreSDKError`.
    """
    check_exposure(host, token)
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(each) for each in listen(host, port)]
        shared = stack.enter_context(SharedView(home, can_act=can_act))
        own_name = f"{secrets.token_hex(_NAME_BYTES)}.localhost" if _is_localhost(host) else ""
        token = token or secrets.token_hex(_TOKEN_BYTES)
        address = Address(host, listening[0].getsockname()[1], token, own_name)
        # The address is told once the server takes the signals: Ctrl-C within a callback of Python's would be lost.
        server = make_server(shared, address, lambda: on_listening(address))
        if until is not None:
            threading.Thread(target=_end_with, args=[until, server], daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # the server ends well, and raises it again
            server.run(sockets=listening)


def _end_with(source: IO[str], server: uvicorn.Server) -> None:
    """Ends the server when the process that started it closes the other end of `source`, or dies."""
    while source.read(1):
        pass
    server.should_exit = True


def make_server(shared: SharedView, address: Address, on_started: Callable[[], None] = lambda: None) -> uvicorn.Server:
    hosts = LOOPBACK_NAMES if is_loopback(address.host) else (*LOOPBACK_NAMES, *_names_of(address.host))
    app = App(shared, TokenGate(address.token, address.port, hosts, address.own_name), read_page())
    return BoundedServer(app, app.end, on_started, most_connections=MOST_CONNECTIONS, grace_s=1)


class BoundedServer(uvicorn.Server):
    """Serves an application to connections that have to vouch for themselves.

    It says when it listens and takes signals, and lets the application `end` its streams before it waits for answers,
    for at most `grace_s`.
    """

    def __init__(
        self,
        app: ASGIApp,
        end: Callable[[], Awaitable[None]],
        on_started: Callable[[], None],
        *,
        most_connections: int,
        grace_s: int,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # the log would contain tickets
            server_header=False,
            proxy_headers=False,
            limit_concurrency=most_connections,
            timeout_graceful_shutdown=grace_s,
            ws="none",
            http=protocol_of_a_server(),
            loop="asyncio",
            lifespan="off",
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        super().__init__(config)
        self._end = end
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._end()
        await super().shutdown(sockets)


def listen(host: str, port: int | None) -> list[socket.socket]:
    """Listens at both addresses of localhost, or at the one that is named.

    Raises `CoreSDKError`, which names a port that is free, or `OSError`.
    """
    wanted = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + _NUM_TRIED), 0]
    for number in wanted:
        try:
            return _bound_to_localhost(number) if _is_localhost(host) else [_bound(host, number)]
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    with _bound(host, 0) as free:
        free_port = free.getsockname()[1]
    raise CoreSDKError(f"port {wanted[0]} of {host} is in use, or not yours to use; port {free_port} is free")


def _is_localhost(host: str) -> bool:
    """Returns whether names below `localhost` lead to this address."""
    return host in ("127.0.0.1", "::1", "localhost")


def _bound_to_localhost(port: int) -> list[socket.socket]:
    """Binds both addresses of localhost: a browser tries either, and no other user may have the port at one."""
    first = _bound("127.0.0.1", port)
    try:
        return [first, _bound("::1", first.getsockname()[1])]
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return [first]  # a machine without IPv6: nobody else can have it either
        first.close()
        raise


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends the end of an answer at once if the socket says that it is TCP; else it may wait for 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)
    except BaseException:
        bound.close()
        raise
    return bound


def _names_of(host: str) -> list[str]:
    """Returns the names under which a browser may reach the server: all names of this machine for a wildcard."""
    names = [_shown(host)]
    if host in ("0.0.0.0", "::"):
        hostname = socket.gethostname()
        names += [hostname, socket.getfqdn()]
        names += [_shown(str(found[4][0])) for found in socket.getaddrinfo(hostname, None)]
    return list(dict.fromkeys(names))


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
