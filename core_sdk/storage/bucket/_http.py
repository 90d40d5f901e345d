"""Reads what the HTTP answers of all stores have in common."""

from __future__ import annotations

from collections.abc import Iterable

from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from core_sdk.storage.bucket._bucket import ObjectMissingError, Sink, TransientError
from core_sdk.storage.bucket._secrets import redacted


def check_range(content_range: str | None, start: int, size_bytes: int, where: str) -> None:
    """Raises `ObjectMissingError` where the object ends before the range does, `TransientError` for another range."""
    extent, _, total = (content_range or "").partition("/")
    if total.isdigit() and int(total) < start + size_bytes:
        raise ObjectMissingError(where)
    if extent != f"bytes {start}-{start + size_bytes - 1}":
        raise TransientError("the answer is not the range that was asked for")


def hand_on(pieces: Iterable[bytes], size_bytes: int, sink: Sink) -> None:
    """Passes exactly `size_bytes` bytes on to `sink`. Raises `TransientError` if more or fewer arrive."""
    num_bytes = 0
    for piece in pieces:
        num_bytes += len(piece)
        if num_bytes > size_bytes:
            break
        sink(piece)
    if num_bytes != size_bytes:
        raise TransientError(f"{num_bytes:,} bytes came of {size_bytes:,}")


def retry_after_s(header: str | None) -> float | None:
    """Returns the seconds that the store asks us to wait, or None. The header holds a number of seconds, or a date."""
    try:
        return None if header is None else Retry().parse_retry_after(header)
    except InvalidHeader:
        return None


def system_reason(error: BaseException) -> str:
    """Returns the operating system's text for a failed connection, or "". The libraries' own texts hold signed URLs."""
    cause: BaseException | None = error
    while cause is not None:
        # Libraries derive classes from OSError too, and put URLs into `strerror`.
        if isinstance(cause, OSError) and cause.strerror and type(cause).__module__ in ("builtins", "socket", "ssl"):
            return redacted(cause.strerror)
        cause = getattr(cause, "inner_exception", None) or cause.__cause__ or cause.__context__
    return ""
