"""A reverse proxy before a server of the tests, which counts requests and does to them what networks do.

    with start_proxy(server.address) as proxy:
        proxy.fault(3, faults.lose_answer())

It has threads of this process, and passes bodies on as they come, without holding them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from buckets.wire import ConnectionEndedError, Head, Wire

# A request that is stalled on purpose is not waited for longer.
_SETTLE_S = 2.0
PORTAL_PATH = "/captive-portal"
PORTAL_PAGE = b"<!DOCTYPE html><html><body><h1>Welcome to Cafe WiFi</h1><form>Room number</form></body></html>"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """Without the query, unquoted."""
    query: str
    head: Head


class LogEntry(NamedTuple):
    """One request that is over."""

    method: str
    path: str
    bytes_up: int
    bytes_down: int


class DropConnection(Exception):
    """Raised by a fault: the connection breaks here."""


class CloseConnection(Exception):
    """Raised by a fault: the connection ends here, in the way that one should."""


class Exchange:
    """One request and its answer; a fault takes the steps that it lets happen."""

    def __init__(self, connection: _Connection, request: Request) -> None:
        self._connection = connection
        self.request = request
        self.bytes_up = 0
        self.bytes_down = 0
        self.is_last = False
        """The server ends the connection after it."""
        self.up_throttle: Throttle | None = None
        self.down_throttle: Throttle | None = None

    def pass_on(self) -> None:
        """Forwards the request and its answer completely, as without a fault."""
        self.forward_request()
        self.forward_answer()

    def forward_request(self, limit: int | None = None) -> None:
        """Forwards the head and the body, or `limit` bytes of the body."""
        upstream = self._connection.connect_upstream()
        upstream.send(self.request.head.without("expect").encode())
        pieces = self._throttled(_limited(self._body(), limit), self.up_throttle)
        try:
            for piece in pieces:
                upstream.send(piece)
                self.bytes_up += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            # The server has answered already, and will not read the rest.
            for _ in pieces:
                pass

    def drain_request(self) -> None:
        """Reads the request's body and discards it."""
        for piece in self._body():
            self.bytes_up += len(piece)

    def forward_answer(self, limit: int | None = None) -> None:
        """Forwards the head and the body, or `limit` bytes of the body."""
        answer = self._answer_head()
        client = self._connection.client
        client.send(answer.replaced("location", *self._connection.addresses).encode())
        body = self._connection.upstream_wire.body(answer.answer_framing(self.request.method))
        for piece in self._throttled(_limited(body, limit), self.down_throttle):
            client.send(piece)
            self.bytes_down += len(piece)
        self.is_last = not answer.keeps_connection()

    def drain_answer(self) -> None:
        """Reads the server's answer completely and discards it."""
        for _ in self._connection.upstream_wire.body(self._answer_head().answer_framing(self.request.method)):
            pass

    def answer(self, line: str, headers: dict[str, str], body: bytes) -> None:
        """Answers the client in place of the server."""
        content = b"" if self.request.method == "HEAD" else body
        head = Head(f"HTTP/1.1 {line}", [*headers.items(), ("Content-Length", str(len(body)))])
        self._connection.client.send(head.encode() + content)
        self.bytes_down += len(content)

    def url_of(self, path: str) -> str:
        """Returns the URL of a page that the proxy itself serves."""
        return self._connection.addresses[1] + path

    def _answer_head(self) -> Head:
        while True:
            answer = self._connection.upstream_wire.read_head()
            if answer.status >= 200:
                return answer

    def _body(self) -> Iterator[memoryview | bytes]:
        if (self.request.head.get("expect") or "").lower() == "100-continue":
            self._connection.client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return self._connection.client.body(self.request.head.request_framing())

    def _throttled(
        self, pieces: Iterator[memoryview | bytes], throttle: Throttle | None
    ) -> Iterator[memoryview | bytes]:
        for each in (self._connection.proxy.throttle, throttle):
            if each is not None:
                pieces = each.slowed(pieces)
        return pieces


Fault = Callable[[Exchange], None]
"""Takes an exchange as far as it goes; raises `DropConnection` or `CloseConnection` to end the connection."""
Matcher = Callable[[Request], bool]


class Throttle:
    """Lets so many bytes per second through, of all that share it."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._piece_bytes = max(1, min(256 << 10, int(bytes_per_s / 50)))
        self._lock = threading.Lock()
        self._free_at = 0.0

    def slowed(self, pieces: Iterable[memoryview | bytes]) -> Iterator[memoryview | bytes]:
        for piece in pieces:
            for start in range(0, len(piece), self._piece_bytes):
                part = piece[start : start + self._piece_bytes]
                self._take(len(part))
                yield part

    def _take(self, num_bytes: int) -> None:
        with self._lock:
            begin = max(self._free_at, time.monotonic())
            self._free_at = begin + num_bytes / self._bytes_per_s
        time.sleep(max(0.0, self._free_at - time.monotonic()))


class Proxy:
    """What `start_proxy` gives: arms faults, and says what has passed."""

    def __init__(self, upstream: tuple[str, int], bytes_per_s: float | None = None) -> None:
        self.upstream = upstream
        self.throttle = None if bytes_per_s is None else Throttle(bytes_per_s)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address: tuple[str, int] = ("127.0.0.1", self._listener.getsockname()[1])
        self._lock = threading.Condition()
        self._num_open = 0
        self._log: list[LogEntry] = []
        self._num_requests = 0
        self._faults: list[tuple[int | Matcher, Fault]] = []
        self._connections: dict[_Connection, threading.Thread] = {}
        self._is_closed = False
        self._acceptor = threading.Thread(target=self._accept, name="fault-proxy", daemon=True)
        self._acceptor.start()

    @property
    def requests(self) -> int:
        """The number of requests since the last `reset`."""
        return self._num_requests

    @property
    def log(self) -> list[LogEntry]:
        """The finished requests since the last `reset`. It waits for one whose answer has just been read."""
        with self._lock:
            self._lock.wait_for(lambda: self._num_open == 0, timeout=_SETTLE_S)
            return list(self._log)

    def fault(self, at: int | Matcher, fault: Fault) -> None:
        """Arms a fault for the request of this number since the last `reset`, or for all matches; the last one wins."""
        with self._lock:
            self._faults.append((at, fault))

    def reset(self) -> None:
        """Removes all faults, and clears the log and the number of requests."""
        with self._lock:
            self._lock.wait_for(lambda: self._num_open == 0, timeout=_SETTLE_S)
            self._faults.clear()
            self._log.clear()
            self._num_requests = 0

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            connection.shutdown()
        for thread in connections.values():
            thread.join(timeout=5)

    def fault_for(self, request: Request) -> Fault:
        """Counts the request, and returns the fault that is armed for it."""
        with self._lock:
            self._num_requests += 1
            self._num_open += 1
            for at, fault in reversed(self._faults):
                if at(request) if callable(at) else at == self._num_requests:
                    return fault
        return Exchange.pass_on

    def record(self, exchange: Exchange) -> None:
        request = exchange.request
        with self._lock:
            self._log.append(LogEntry(request.method, request.path, exchange.bytes_up, exchange.bytes_down))
            self._num_open -= 1
            self._lock.notify_all()

    def forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.pop(connection, None)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            connection = _Connection(self, Wire(client))
            thread = threading.Thread(target=connection.serve, name="fault-proxy-connection", daemon=True)
            with self._lock:
                self._connections[connection] = thread
            thread.start()


class _Connection:
    """A client's connection, and the server's that goes with it."""

    def __init__(self, proxy: Proxy, client: Wire) -> None:
        self.proxy = proxy
        self.client = client
        self._upstream: Wire | None = None
        self.addresses = (_url(proxy.upstream), _url(proxy.address))

    @property
    def upstream_wire(self) -> Wire:
        assert self._upstream is not None, "nothing was forwarded yet"
        return self._upstream

    def connect_upstream(self) -> Wire:
        if self._upstream is not None and not self._upstream.is_idle():
            self._upstream.close()
            self._upstream = None
        if self._upstream is None:
            self._upstream = Wire.connect(self.proxy.upstream)
        return self._upstream

    def serve(self) -> None:
        try:
            with contextlib.suppress(CloseConnection):
                while self._serve_request():
                    pass
            self.client.shutdown()
            self.client.close()
        except (DropConnection, ConnectionEndedError, OSError):
            self.client.reset()
        finally:
            if self._upstream is not None:
                self._upstream.close()
            self.proxy.forget(self)

    def shutdown(self) -> None:
        self.client.shutdown()
        if self._upstream is not None:
            self._upstream.shutdown()

    def _serve_request(self) -> bool:
        """Serves one request; returns whether another one may follow on the connection."""
        try:
            head = self.client.read_head()
        except ConnectionEndedError:
            return False
        exchange = Exchange(self, _request(head))
        if exchange.request.path == PORTAL_PATH:
            exchange.drain_request()
            exchange.answer("200 OK", {"Content-Type": "text/html"}, PORTAL_PAGE)
            return head.keeps_connection()
        try:
            self.proxy.fault_for(exchange.request)(exchange)
        finally:
            self.proxy.record(exchange)
        return head.keeps_connection() and not exchange.is_last


@contextlib.contextmanager
def start_proxy(upstream: tuple[str, int], bytes_per_s: float | None = None) -> Iterator[Proxy]:
    """Starts the proxy. With `bytes_per_s`, all bodies together travel no faster."""
    proxy = Proxy(upstream, bytes_per_s)
    try:
        yield proxy
    finally:
        proxy.close()


def _request(head: Head) -> Request:
    method, target, _ = head.line.split(" ", 2)
    path, _, query = target.partition("?")
    return Request(method, unquote(path), query, head)


def _url(address: tuple[str, int]) -> str:
    return f"http://{address[0]}:{address[1]}"


def _limited(pieces: Iterator[memoryview | bytes], limit: int | None) -> Iterator[memoryview | bytes]:
    if limit is None:
        yield from pieces
        return
    while limit > 0 and (piece := next(pieces, None)) is not None:
        yield piece[:limit]
        limit -= len(piece)
