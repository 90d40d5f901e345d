"""Who is answered: the browser that was given the token, at the address where we serve, and from our own page.

Any user of this machine can connect to a port of it, and any web page can make a browser send requests to it. So every
answer, the page's files included, takes the token: as a bearer, or as the cookie that a browser gets when it opens the
address with the token. A foreign name in `Host` is a web page that has rebound its name to us; a foreign `Origin` is a
web page too.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

ACTION_HEADER = "x-core-sdk-action"
"""A web page of others cannot send it."""

MAX_BODY_BYTES = 64 << 10
LEAST_TOKEN_LENGTH = 16

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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


class Refusal(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, kind: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.hint = status, kind, message, hint


class Gate:
    """Decides who comes in. `hosts` are the names and addresses, without port, under which we are reached."""

    def __init__(self, token: str, port: int, hosts: Iterable[str]) -> None:
        self._token = token.encode()
        self._allowed = {f"{host.lower()}:{port}" for host in hosts}
        self._allowed |= {host.lower() for host in hosts} if port == 80 else set()
        self.cookie_name = f"core-sdk-{port}"  # cookies do not tell ports apart

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raises `Refusal`."""
        self._check_address(headers)
        if not self._is_known(headers):
            raise Refusal(
                401,
                "no_token",
                "this needs the token of the server",
                "Open the address that `core-sdk ui` has printed; it begins with http:// and ends with the token.",
            )
        if method not in ("GET", "HEAD") and headers.only(ACTION_HEADER) != "1":
            raise Refusal(403, "no_action_header", f"{method} needs the header X-Core-SDK-Action: 1", "")

    def check_entrance(self, query: bytes, headers: Headers) -> bool:
        """Whether the request brings the token in its address, to change it for a cookie. Raises `Refusal`."""
        found = parse_qs(query.decode("ascii", "replace"), max_num_fields=20).get("token")
        if not found:
            return False
        self._check_address(headers)
        if len(found) != 1 or not self._is_token(found[0]):
            raise Refusal(
                401, "wrong_token", "the token is not that of this server", "Each start of `core-sdk ui` has its own."
            )
        return True

    def cookie(self) -> str:
        return f"{self.cookie_name}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"

    def _check_address(self, headers: Headers) -> None:
        host = headers.only("host")
        if host is None or host.lower() not in self._allowed:
            raise Refusal(
                403,
                "foreign_host",
                "the request is for another host",
                f"This server answers at {', '.join(sorted(self._allowed))}.",
            )
        origins = headers.all("origin")
        if any(origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}") for origin in origins):
            raise Refusal(403, "foreign_origin", "the request comes from another web page", "")

    def _is_known(self, headers: Headers) -> bool:
        bearer = (headers.only("authorization") or "").partition(" ")
        if bearer[0].lower() == "bearer" and self._is_token(bearer[2].strip()):
            return True
        try:
            cookies = SimpleCookie("; ".join(headers.all("cookie")))
        except CookieError:
            return False
        return self.cookie_name in cookies and self._is_token(cookies[self.cookie_name].value)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="surrogateescape"), self._token)


class Headers:
    """The headers of a request, of which each may come several times."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]

    def all(self, name: str) -> list[str]:
        return [value for found, value in self._pairs if found == name]

    def only(self, name: str) -> str | None:
        """None unless it comes exactly once."""
        found = self.all(name)
        return found[0] if len(found) == 1 else None
