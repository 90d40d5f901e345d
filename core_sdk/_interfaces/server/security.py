"""Answers only requests that have the token, come to the address where we serve, and come from our own page.

Any user of this machine can connect to a port of it, and any web page can make a browser send requests to it. So every
question needs the token, as a bearer. The page has it from the fragment of the address that opens it, which no browser
sends. There is no cookie: cookies do not tell ports apart, so that a browser gives them to the servers of other users.
Only the files of the page itself, which are the same for everybody, need no token.

An origin outlives its server: another user who takes the port afterwards can leave a service worker there, which
answers in place of the next server. So each server has a random name of its own below `localhost`.

A foreign name in `Host` is a web page that has rebound its name to us; a foreign `Origin` is a web page too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from starlette.datastructures import Headers

from core_sdk._interfaces.server.errors import RequestError

ACTION_HEADER = "x-core-sdk-action"
"""A header that a web page from another origin cannot send."""

MAX_BODY_BYTES = 64 << 10
LEAST_TOKEN_LENGTH = 16
TICKET_S = 60

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "media-src blob:; frame-src 'self'; connect-src 'self'; worker-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


# A document for HTML that a run has written: its scripts run in an origin of their own. The policy closes the network
# as far as policies can: WebRTC and the name lookups of navigations are beyond it.
FRAME_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'unsafe-inline'; img-src data: blob:; media-src data:; font-src data:; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'self'"
    ),
    "x-frame-options": "SAMEORIGIN",
}


class Gate(Protocol):
    """Decides which requests an application answers."""

    @property
    def session_key(self) -> str: ...

    def check_address(self, headers: Headers) -> None:
        """Raises `RequestError` if the request is for another host, from another web page or for a service worker."""

    def check(self, method: str, headers: Headers, ticket: str | None) -> None:
        """Raises `RequestError` if the request is not answered."""

    def is_known(self, headers: Headers) -> bool: ...

    def has_own_name(self, headers: Headers) -> bool: ...

    def ticket(self) -> str: ...


class PassedGate:
    """The gate of an application that is only called for requests that another door has let pass."""

    session_key = ""

    def check_address(self, headers: Headers) -> None:
        pass

    def check(self, method: str, headers: Headers, ticket: str | None) -> None:
        pass

    def is_known(self, headers: Headers) -> bool:
        return True

    def has_own_name(self, headers: Headers) -> bool:
        return False

    def ticket(self) -> str:
        return ""


class TokenGate:
    """Answers whoever has the token of this server.

    `hosts` are the names and addresses, without port, under which the server is reached. `own_name` is another one,
    which is known only from the address that the server prints.
    """

    def __init__(self, token: str, port: int, hosts: Iterable[str], own_name: str = "") -> None:
        self.session_key = secrets.token_hex(24)
        """The key that the page keeps in place of the token: it is useless once this server has ended."""
        self._token = token.encode()
        self._own = _as_sent([own_name] if own_name else [], port)
        self._allowed = _as_sent(hosts, port) | self._own

    def check_address(self, headers: Headers) -> None:
        """Raises `RequestError` if the request is for another host, from another web page or for a service worker."""
        if headers.getlist("service-worker"):
            # The browser asks for the script of a worker that somebody else has left at this address, which ends it.
            clear = {"clear-site-data": '"storage"'}
            raise RequestError(403, "no_service_worker", "the page has no service worker", headers=clear)
        host = only(headers, "host")
        if host is None or host.lower() not in self._allowed:
            raise RequestError(
                403,
                "foreign_host",
                "the request is for another host",
                "Open the address that `core-sdk ui` has printed; each start has another name.",
            )
        origins = headers.getlist("origin")
        if any(origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}") for origin in origins):
            raise RequestError(403, "foreign_origin", "the request comes from another web page")

    def check(self, method: str, headers: Headers, ticket: str | None) -> None:
        """Raises `RequestError` if the request brings no token, or changes something without the action header."""
        if not self.is_known(headers) and not (method in ("GET", "HEAD") and self._is_valid(ticket)):
            raise RequestError(
                401,
                "no_token",
                "this needs the token of the server",
                "Open the address that `core-sdk ui` has printed; it ends with the token. Each start has another one.",
            )
        if method not in ("GET", "HEAD") and only(headers, ACTION_HEADER) != "1":
            raise RequestError(403, "no_action_header", f"{method} needs the header X-Core-SDK-Action: 1")

    def is_known(self, headers: Headers) -> bool:
        """Returns whether the request brings the token, or the session key that the page got for it."""
        kind, _, given = (only(headers, "authorization") or "").partition(" ")
        found = given.strip().encode(errors="surrogateescape")
        is_token = hmac.compare_digest(found, self._token) | hmac.compare_digest(found, self.session_key.encode())
        return kind.lower() == "bearer" and is_token

    def has_own_name(self, headers: Headers) -> bool:
        """Returns whether the request uses the server's own name, which is known only from its address."""
        return only(headers, "host") in self._own

    def ticket(self) -> str:
        """Returns a ticket, which for a short time replaces the token in the address of a file that a browser saves."""
        return self._ticket_until(int(time.monotonic()) + TICKET_S)

    def _ticket_until(self, end: int) -> str:
        return f"{end}-{hmac.new(self.session_key.encode(), str(end).encode(), hashlib.sha256).hexdigest()}"

    def _is_valid(self, ticket: str | None) -> bool:
        end = (ticket or "").partition("-")[0]
        if ticket is None or not end.isascii() or not end.isdigit() or len(end) > 15 or int(end) < time.monotonic():
            return False
        return hmac.compare_digest(ticket.encode(errors="surrogatepass"), self._ticket_until(int(end)).encode())


def _as_sent(hosts: Iterable[str], port: int) -> set[str]:
    """Returns the hosts as a browser writes them in `Host`."""
    return {
        f"{host.lower()}{suffix}" for host in hosts for suffix in ([f":{port}", ""] if port == 80 else [f":{port}"])
    }


def only(headers: Headers, name: str) -> str | None:
    """Returns the header's value, or None unless it comes exactly once."""
    found = headers.getlist(name)
    return found[0] if len(found) == 1 else None
