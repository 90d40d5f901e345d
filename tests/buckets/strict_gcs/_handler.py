"""HTTP: requests come in, and go to the API that their path names."""

from __future__ import annotations

import email
import json
import re
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from buckets.strict_gcs import _json_api as json_api
from buckets.strict_gcs import _xml_api as xml_api
from buckets.strict_gcs._answers import Answer, Refused
from buckets.strict_gcs._store import Store, Switches


@dataclass(frozen=True)
class Request:
    method: str
    path: list[str]
    """The path's segments, unquoted."""
    query: dict[str, str]
    headers: dict[str, str]
    """With names in lower case."""
    body: bytes

    def parts(self) -> list[tuple[str, bytes]]:
        """Returns the content type and the content of each part of a body in several parts."""
        boundary = re.search(r'boundary="?([^";]+)', self.headers["content-type"])
        assert boundary is not None
        pieces = self.body.split(b"--" + boundary.group(1).encode())[1:-1]
        heads = [re.split(rb"\r?\n\r?\n", piece, maxsplit=1) for piece in pieces]
        return [
            (
                email.message_from_bytes(head.lstrip()).get_content_type(),
                content.removesuffix(b"\n").removesuffix(b"\r"),
            )
            for head, content in heads
        ]

    def json(self) -> dict[str, str]:
        content: dict[str, str] = json.loads(self.body or b"{}")
        return content


def parse(method: str, target: str, headers: dict[str, str], body: bytes) -> Request:
    split = urlsplit(target)
    path = [unquote(segment) for segment in split.path.strip("/").split("/")]
    return Request(method, path, dict(parse_qsl(split.query, keep_blank_values=True)), headers, body)


def answer_to(store: Store, switches: Switches, request: Request) -> Answer:
    path = request.path
    try:
        with store.lock:
            if path[:3] in (["upload", "storage", "v1"], ["download", "storage", "v1"]):
                return json_api.bytes_answer(store, switches, request)
            if path[:2] == ["storage", "v1"]:
                return json_api.answer(store, switches, request)
            return xml_api.answer(store, switches, request)
    except Refused as refused:
        return refused.answer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are written apart; otherwise the body waits for the client's acknowledgement of the head.
    disable_nagle_algorithm = True
    store: ClassVar[Store]
    switches: ClassVar[Switches]

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.switches.requests.append(f"{self.command} {self.path}")
        body = self.rfile.read(int(headers.get("content-length", 0)))
        request = parse(self.command, self.path, headers, body)
        prepared = self.switches.answers
        answer = (prepared.pop(0) if prepared else None) or answer_to(self.store, self.switches, request)
        if self.switches.lose_answers_to is not None and self.switches.lose_answers_to in self.requestline:
            self.switches.lose_answers_to = None
            self.close_connection = True
            return
        self._send(answer)

    do_POST = do_PUT = do_DELETE = do_GET

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in (answer.headers | {"Content-Length": str(len(answer.body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""
