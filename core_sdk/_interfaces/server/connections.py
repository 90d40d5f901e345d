"""Connections that nobody has vouched for with the token: how long they may be silent, and how many there may be.

Any user of this machine can connect. A connection that has not brought the token is closed if no whole head of a
request comes in time, and the oldest one makes room where there are too many, other users' connections first: they may
connect faster than a browser sends what it has to say. So a browser that has the token always finds a place.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from core_sdk._interfaces.server.peers import may_be_other_user

HEAD_S = 5.0
"""The longest time for the head of a request, from its first byte."""
SILENT_S = 30.0
"""The longest time without a first byte: browsers open connections before they need them."""
MOST_UNKNOWN = 128
MOST_CONNECTIONS = 512

_TRUST = "core_sdk.trust"


def vouch(scope: Any) -> None:
    """Marks the connection of a request that has brought the token; does nothing under other servers."""
    if (trust := scope.get("state", {}).get(_TRUST)) is not None:
        trust()


class BoundedProtocol(H11Protocol):
    """A connection of a server; `protocol_of_a_server` makes a class for each."""

    unknown: ClassVar[dict[BoundedProtocol, bool]]
    """The connections that have not brought the token, the oldest first, and whether each may be another user's."""
    _deadline: asyncio.TimerHandle | None = None
    _is_begun = False
    """Whether a part of the next request's head has arrived."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = self.app_state | {_TRUST: lambda: self.unknown.pop(self, None)}  # each request gets a copy
        self.unknown[self] = may_be_other_user(transport.get_extra_info("socket"))
        if len(self.unknown) > MOST_UNKNOWN:
            oldest = max(self.unknown, key=lambda one: self.unknown[one])
            del self.unknown[oldest]
            self.connections.discard(oldest)  # it counts no more, though its end is told only later
            oldest.transport.abort()
        self._wait(SILENT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self.unknown.pop(self, None)
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            self._stop_waiting()
            self._is_begun = False
        elif not self._is_begun:
            self._is_begun = True
            self._wait(HEAD_S)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self._is_answering:
            self.transport.close()


def protocol_of_a_server() -> type[BoundedProtocol]:
    class ServerProtocol(BoundedProtocol):
        unknown: ClassVar[dict[BoundedProtocol, bool]] = {}

    return ServerProtocol
