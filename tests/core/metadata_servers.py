"""Stubs of the clouds' metadata servers, which say what a test has them say, and fail as it has them fail."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any, Literal, Self, get_args
from urllib.parse import parse_qs, urlsplit

from processes import TIMEOUT_S

Fault = Literal["hangs", "fails", "is garbage", "is no HTTP", "redirects", "is a stranger", "lies about its length"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class StubServer:
    """A metadata server on a free port of this machine, or on `port`."""

    def __init__(self, fault: Fault | None = None, port: int = 0) -> None:
        self.fault = fault
        self.requests: list[tuple[str, str]] = []
        """Methods and paths, in the order of their arrival."""
        self.news = threading.Condition()
        self.is_closed = False
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.handle(self)

            do_PUT = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """Keeps requests out of the test's output."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.news:
            self.is_closed = True
            self.news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def say(self, **news: Any) -> None:
        """Changes what the server answers and wakes the requests that wait for a change."""
        with self.news:
            for name, value in news.items():
                setattr(self, name, value)
            self.news.notify_all()

    def handle(self, request: http.server.BaseHTTPRequestHandler) -> None:
        with self.news:
            self.requests.append((request.command, request.path))
            self.news.notify_all()
        match self.fault:
            case None:
                self.answer(request)
            case "hangs":
                self._wait_for_end()
            case "fails":
                send(request, 500, "")
            case "is garbage":
                send(request, 200, "<html>\x00 no such thing", {"Metadata-Flavor": "Google"})
            case "is no HTTP":
                request.wfile.write(b"\x00\xff" * 100)
            case "redirects":
                send(request, 302, "", {"Location": f"http://127.0.0.1:{self.port}/elsewhere"})
            case "lies about its length":
                request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n")
            case "is a stranger":
                send(request, 200, "TRUE")

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def wait_for_requests(self, number: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.requests) >= number, TIMEOUT_S)

    def _wait_for_end(self) -> None:
        with self.news:
            self.news.wait_for(lambda: self.is_closed or self.fault is None)


class GoogleStub(StubServer):
    preempted = "FALSE"
    maintenance = "NONE"

    @property
    def variables(self) -> dict[str, str]:
        return {"GCE_METADATA_HOST": f"127.0.0.1:{self.port}"}

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        name = {
            "/computeMetadata/v1/instance/preempted": "preempted",
            "/computeMetadata/v1/instance/maintenance-event": "maintenance",
        }.get(url.path)
        if name is None or request.headers["Metadata-Flavor"] != "Google":
            send(request, 403, "")
            return
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if query.get("wait_for_change") == "true":
            with self.news:
                is_new = lambda: self.is_closed or _etag(getattr(self, name)) != query.get("last_etag")  # noqa: E731
                self.news.wait_for(is_new, float(query["timeout_sec"]))
        text = getattr(self, name)
        send(request, 200, text, {"Metadata-Flavor": "Google", "ETag": _etag(text)})


class AmazonStub(StubServer):
    """A stub of Amazon's server: each token that it issues is valid until the next one."""

    interruption: dict[str, str] | None = None
    num_tokens = 0

    @property
    def variables(self) -> dict[str, str]:
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{self.port}/"}

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        if request.command == "PUT" and request.path == "/latest/api/token":
            if not 1 <= int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) <= 21_600:
                send(request, 400, "")
                return
            self.num_tokens += 1
            send(request, 200, self._token())
        elif request.headers["X-aws-ec2-metadata-token"] != self._token():
            send(request, 401, "")
        elif request.path != "/latest/meta-data/spot/instance-action" or self.interruption is None:
            send(request, 404, "<html>not found</html>")
        else:
            send(request, 200, json.dumps(self.interruption))

    def _token(self) -> str:
        return f"secret-token-{self.num_tokens}=="


def send(
    request: http.server.BaseHTTPRequestHandler, status: int, text: str, headers: dict[str, str] | None = None
) -> None:
    request.send_response(status)
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(text.encode())))
    request.end_headers()
    request.wfile.write(text.encode())


def _etag(text: str) -> str:
    return f"etag-{text}"
