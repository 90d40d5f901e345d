"""What networks and stores do to a request, for the proxy to do in their place."""

from __future__ import annotations

import threading
import time

from buckets.proxy import PORTAL_PAGE, PORTAL_PATH, CloseConnection, DropConnection, Exchange, Fault, Throttle

_REASONS = {
    302: "Found",
    307: "Temporary Redirect",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


def drop_request(after_bytes: int | None = None) -> Fault:
    """Returns a fault that breaks the connection before the request arrives, or after so many bytes of its body."""

    def drop(exchange: Exchange) -> None:
        if after_bytes is not None:
            exchange.forward_request(limit=after_bytes)
        raise DropConnection

    return drop


def lose_answer() -> Fault:
    """Returns a fault in which the server does what was asked, but its answer is lost."""

    def lose(exchange: Exchange) -> None:
        exchange.forward_request()
        exchange.drain_answer()
        raise DropConnection

    return lose


def drop_answer(after_bytes: int) -> Fault:
    """Returns a fault in which the connection breaks after this number of bytes of the answer's body."""

    def drop(exchange: Exchange) -> None:
        exchange.forward_request()
        exchange.forward_answer(limit=after_bytes)
        raise DropConnection

    return drop


def truncate_answer(after_bytes: int) -> Fault:
    """Returns a fault in which the server ends the connection well, but before all of its Content-Length is sent."""

    def truncate(exchange: Exchange) -> None:
        exchange.forward_request()
        exchange.forward_answer(limit=after_bytes)
        raise CloseConnection

    return truncate


def status(code: int, retry_after_s: int | None = None) -> Fault:
    """Returns a fault in which the store, or a load balancer before it, answers with this status."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return answer(f"{code} {_REASONS[code]}", headers, b"")


def captive_portal() -> Fault:
    """Returns a fault in which a network that wants a login answers in the server's place, with 200."""
    return answer("200 OK", {"Content-Type": "text/html"}, PORTAL_PAGE)


def redirect_to_portal(code: int = 302) -> Fault:
    """Returns a fault in which a network that wants a login sends the client to its page."""

    def redirect(exchange: Exchange) -> None:
        exchange.drain_request()
        exchange.answer(f"{code} {_REASONS[code]}", {"Location": exchange.url_of(PORTAL_PATH)}, b"")

    return redirect


def slow(up_bytes_per_s: float | None = None, down_bytes_per_s: float | None = None) -> Fault:
    """Returns a fault in which the bytes of this request and its answer travel at most at these rates."""

    def pass_slowly(exchange: Exchange) -> None:
        exchange.up_throttle = None if up_bytes_per_s is None else Throttle(up_bytes_per_s)
        exchange.down_throttle = None if down_bytes_per_s is None else Throttle(down_bytes_per_s)
        exchange.pass_on()

    return pass_slowly


def latency(seconds: float) -> Fault:
    """Returns a fault in which the answer comes this many seconds later."""

    def pass_late(exchange: Exchange) -> None:
        exchange.forward_request()
        time.sleep(seconds)
        exchange.forward_answer()

    return pass_late


def stall(reached: threading.Event, released: threading.Event) -> Fault:
    """Returns a fault that holds the request until it is released; `reached` says that it has come."""

    def hold(exchange: Exchange) -> None:
        reached.set()
        released.wait()
        exchange.pass_on()

    return hold


def answer(line: str, headers: dict[str, str], body: bytes) -> Fault:
    """Returns a fault in which somebody else answers in the server's place: `line` is status and reason."""

    def answer_request(exchange: Exchange) -> None:
        exchange.drain_request()
        exchange.answer(line, headers, body)

    return answer_request
