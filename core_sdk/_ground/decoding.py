"""Values of given types out of JSON and MessagePack, decoded by any number of threads.

msgspec looks up the fields of a type at its first use, and the process ends with a segmentation fault if another thread
uses the type meanwhile (seen with 0.22). So one thread at a time looks them up here, and typed decoding begins nowhere
else.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
Content = bytes | bytearray | memoryview | str
DecHook = Callable[[type, Any], Any]

_looking_up = threading.RLock()
# A fork in the middle of a lookup would leave the child with a lock that nobody releases, and a type half looked up.
os.register_at_fork(before=_looking_up.acquire, after_in_parent=_looking_up.release, after_in_child=_looking_up.release)


@overload
def json_decoder(kind: type[T], dec_hook: DecHook | None = None) -> Callable[[Content], T]: ...


@overload
def json_decoder(kind: Any, dec_hook: DecHook | None = None) -> Callable[[Content], Any]: ...


def json_decoder(kind: Any, dec_hook: DecHook | None = None) -> Callable[[Content], Any]:
    """Returns a function that decodes JSON to this type, the same one each time. It raises `msgspec.MsgspecError`."""
    return _json_decoder(kind, dec_hook)


@overload
def msgpack_decoder(kind: type[T]) -> Callable[[Content], T]: ...


@overload
def msgpack_decoder(kind: Any) -> Callable[[Content], Any]: ...


def msgpack_decoder(kind: Any) -> Callable[[Content], Any]:
    """Returns a function that decodes MessagePack to this type, as `json_decoder` does."""
    return _msgpack_decoder(kind)


@overload
def convert(value: object, kind: type[T], *, strict: bool = True) -> T: ...


@overload
def convert(value: object, kind: Any, *, strict: bool = True) -> Any: ...


def convert(value: object, kind: Any, *, strict: bool = True) -> Any:
    """Converts plain values to this type, as `msgspec.convert` does. Raises `msgspec.ValidationError`."""
    _json_decoder(kind, None)
    return msgspec.convert(value, kind, strict=strict)


@functools.cache
def _json_decoder(kind: Any, dec_hook: DecHook | None) -> Callable[[Content], Any]:
    with _looking_up:
        return msgspec.json.Decoder(kind, dec_hook=dec_hook).decode


@functools.cache
def _msgpack_decoder(kind: Any) -> Callable[[Any], Any]:
    with _looking_up:
        return msgspec.msgpack.Decoder(kind).decode
