"""HTTP requests to a metadata server, which heed no proxy, follow no redirect, and end in time."""

from __future__ import annotations

import contextlib
import http.client  # urllib and requests heed proxies, follow redirects, and take longer to import
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from core_sdk.core._preempt._notices._clouds import Cloud

_CONNECT_S = 3.0
_MAX_ANSWER_BYTES = 65_536
_MAX_REASON_CHARS = 200


class NoAnswer(Exception):
    """The server does not answer, or something else answers in its place."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """The headers, by names in lower case."""
    text: str = field(repr=False)
    """Kept out of the repr, since it may be a token."""


class MetadataServer:
    """A client of a metadata server. One thread asks it; any thread may `abort()` it, for good."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._socket: socket.socket | None = None
        self._is_aborted = False

    def ask(self, method: str, path: str, headers: Mapping[str, str], timeout_s: float) -> Answer:
        """Returns the server's answer, whatever its status. Raises `NoAnswer` if there is none, or it is not HTTP."""
        connection = http.client.HTTPConnection(self._cloud.host, self._cloud.port, timeout=_CONNECT_S)
        # The socket's own time-out starts again with every byte.
        is_late = threading.Event()
        deadline = threading.Timer(_CONNECT_S + timeout_s, self._end_late_question, (is_late,))
        deadline.daemon = True
        deadline.start()
        try:
            connection.connect()
            self._socket = connection.sock
            if self._is_aborted:
                raise NoAnswer("the listener is closed")
            connection.sock.settimeout(timeout_s)
            connection.request(method, self._cloud.path + path, headers={"Connection": "close", **headers})
            answer = _read(connection.getresponse())
            if is_late.is_set():
                raise NoAnswer("it answers too slowly")
            return answer
        # ValueError: a host name, a length or a status that is not valid.
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}"[:_MAX_REASON_CHARS]) from error
        finally:
            deadline.cancel()
            self._socket = None
            connection.close()

    def abort(self) -> None:
        """Ends the request that is under way, and refuses later ones."""
        self._is_aborted = True
        self._end_question()

    def _end_late_question(self, is_late: threading.Event) -> None:
        is_late.set()
        self._end_question()

    def _end_question(self) -> None:
        if (connected := self._socket) is not None:
            with contextlib.suppress(OSError):  # the connection has just ended by itself
                connected.shutdown(socket.SHUT_RDWR)


def _read(response: http.client.HTTPResponse) -> Answer:
    content = response.read(_MAX_ANSWER_BYTES)
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, content.decode(errors="replace").strip())
