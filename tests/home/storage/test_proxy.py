"""The fault proxy does what it says: without a fault nothing, with one just that."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from buckets import faults
from buckets.proxy import Fault, Proxy, start_proxy

CONTENT = bytes(range(256)) * 4096


class Echo(BaseHTTPRequestHandler):
    """Answers GET with `CONTENT`, PUT with the length of the body and POST with a location; counts requests."""

    protocol_version = "HTTP/1.1"
    server: EchoServer

    def do_GET(self) -> None:
        self.answer(200, {"Content-Length": str(len(CONTENT))}, CONTENT)

    def do_HEAD(self) -> None:
        self.answer(200, {"Content-Length": str(len(CONTENT))}, b"")

    def do_PUT(self) -> None:
        text = f"{len(self.read_body())} {self.headers['Host']}".encode()
        self.answer(200, {"Transfer-Encoding": "chunked"}, b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text))

    def do_POST(self) -> None:
        port = self.connection.getsockname()[1]
        self.answer(308, {"Location": f"http://127.0.0.1:{port}/upload?id=1", "Content-Length": "0"}, b"")

    def do_DELETE(self) -> None:
        self.answer(204, {}, b"")

    def read_body(self) -> bytes:
        if self.headers["Transfer-Encoding"] != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"]))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.server.num_handled += 1
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class EchoServer(ThreadingHTTPServer):
    num_handled = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores connections that the proxy breaks."""


@pytest.fixture
def upstream() -> Iterator[EchoServer]:
    """A server for each test, since a request that was cut off may still be counted when its test is over."""
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(upstream: EchoServer) -> Iterator[Proxy]:
    with start_proxy(("127.0.0.1", upstream.server_port)) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(*proxy.address, timeout=20)) as client:
        yield client


def ask(client: http.client.HTTPConnection, method: str, body: object = None, **headers: str) -> tuple[int, bytes]:
    client.request(method, "/some%20thing?query=1", body, headers)  # type: ignore[arg-type]
    answer = client.getresponse()
    return answer.status, answer.read()


def test_without_a_fault_all_passes_over_one_connection(proxy: Proxy, client: http.client.HTTPConnection) -> None:
    """Without faults, all requests and answers pass unchanged over one connection."""
    host = f"{proxy.address[0]}:{proxy.address[1]}"

    client.connect()
    socket = client.sock
    assert ask(client, "GET") == (200, CONTENT)
    assert ask(client, "HEAD") == (200, b"")
    assert ask(client, "PUT", CONTENT) == (200, f"{len(CONTENT)} {host}".encode())
    assert ask(client, "PUT", iter([b"abc", b"defg"])) == (200, f"7 {host}".encode())
    assert ask(client, "PUT", b"abc", Expect="100-continue") == (200, f"3 {host}".encode())
    assert ask(client, "DELETE") == (204, b"")
    client.request("POST", "/")
    answer = client.getresponse()
    answer.read()

    assert answer.getheader("Location") == f"http://{host}/upload?id=1"
    assert client.sock is socket
    assert proxy.requests == 7
    assert proxy.log[0] == ("GET", "/some thing", 0, len(CONTENT))
    assert proxy.log[2][:3] == ("PUT", "/some thing", len(CONTENT))


def test_a_dropped_request_is_never_heard_of(
    proxy: Proxy, client: http.client.HTTPConnection, upstream: EchoServer
) -> None:
    """A dropped request does not reach the server, and later ones do."""
    proxy.fault(2, faults.drop_request())

    ask(client, "DELETE")
    with pytest.raises(ConnectionError):
        ask(client, "DELETE")
    client.close()
    ask(client, "DELETE")

    assert upstream.num_handled == 2


def test_a_request_is_dropped_within_its_body(proxy: Proxy, client: http.client.HTTPConnection) -> None:
    """A request that is dropped within its body is forwarded up to that byte."""
    proxy.fault(1, faults.drop_request(after_bytes=1000))

    with pytest.raises(ConnectionError):
        ask(client, "PUT", CONTENT)

    assert [entry.bytes_up for entry in proxy.log] in ([], [1000])


def test_of_a_lost_answer_the_server_has_done_the_work(
    proxy: Proxy, client: http.client.HTTPConnection, upstream: EchoServer
) -> None:
    proxy.fault(lambda request: request.method == "PUT", faults.lose_answer())

    with pytest.raises(ConnectionError):
        ask(client, "PUT", CONTENT)

    assert upstream.num_handled == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [(faults.drop_answer(5000), ConnectionError), (faults.truncate_answer(5000), http.client.IncompleteRead)],
)
def test_an_answer_ends_within_its_body(
    proxy: Proxy, client: http.client.HTTPConnection, fault: Fault, error: type[Exception]
) -> None:
    """An answer can be cut off by a reset or by a normal end of the connection."""
    proxy.fault(1, fault)

    with pytest.raises(error):
        ask(client, "GET")


def test_other_answers_come_in_the_servers_place(
    proxy: Proxy, client: http.client.HTTPConnection, upstream: EchoServer
) -> None:
    """Refusals, a login page, the way to it; the connection stays, and a request's body is read away."""
    proxy.fault(1, faults.status(429, retry_after_s=3))
    proxy.fault(2, faults.captive_portal())
    proxy.fault(3, faults.redirect_to_portal(307))

    client.request("PUT", "/", CONTENT)
    refusal = client.getresponse()
    refusal.read()
    page = ask(client, "PUT", CONTENT)
    client.request("GET", "/")
    redirect = client.getresponse()
    redirect.read()
    client.request("GET", redirect.headers["Location"].partition(str(proxy.address[1]))[2])
    landed = client.getresponse()

    assert (refusal.status, refusal.getheader("Retry-After")) == (429, "3")
    assert page[0] == 200
    assert page[1].startswith(b"<!DOCTYPE html>")
    assert redirect.status == 307
    assert landed.read() == page[1]
    assert upstream.num_handled == 0
    assert proxy.requests == 3


@pytest.mark.parametrize(
    "fault", [faults.slow(down_bytes_per_s=len(CONTENT) * 5), faults.latency(0.2)], ids=["slow", "late"]
)
def test_time_passes(proxy: Proxy, client: http.client.HTTPConnection, fault: Fault) -> None:
    """A fifth of a second, for slow bytes as for a late answer, and nothing is lost."""
    proxy.fault(1, fault)
    began = time.monotonic()

    answer = ask(client, "GET")

    assert answer == (200, CONTENT)
    assert time.monotonic() - began > 0.18


def test_a_stalled_request_waits_until_it_is_released(proxy: Proxy, client: http.client.HTTPConnection) -> None:
    """A stalled request reaches the server only when it is released."""
    reached, released = threading.Event(), threading.Event()
    proxy.fault(1, faults.stall(reached, released))

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, client, "GET")
        assert reached.wait(20)
        assert not answer.done()
        released.set()

    assert answer.result() == (200, CONTENT)


def test_all_connections_share_one_rate(upstream: EchoServer) -> None:
    """All connections together are limited to one rate."""
    began = time.monotonic()

    with (
        start_proxy(("127.0.0.1", upstream.server_port), bytes_per_s=len(CONTENT) * 16) as proxy,
        ThreadPoolExecutor(4) as pool,
    ):

        def fetch(_: int) -> tuple[int, bytes]:
            with closing(http.client.HTTPConnection(*proxy.address, timeout=20)) as client:
                return ask(client, "GET")

        answers = list(pool.map(fetch, range(4)))

    assert answers == [(200, CONTENT)] * 4
    assert time.monotonic() - began > 0.2


def test_a_reset_forgets(proxy: Proxy, client: http.client.HTTPConnection) -> None:
    """reset() removes all faults and restarts the numbering."""
    ask(client, "DELETE")
    proxy.fault(lambda request: True, faults.drop_request())

    proxy.reset()

    assert proxy.requests == 0
    assert ask(client, "DELETE") == (204, b"")
    assert proxy.requests == 1
