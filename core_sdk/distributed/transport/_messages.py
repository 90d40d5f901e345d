"""What channel threads tell each other, beside the collectives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from core_sdk.distributed._topology import RankIdentity


class Hello(msgspec.Struct, frozen=True):
    """The first frame of a connection."""

    identity: RankIdentity
    member: str
    """The same in both connections of one context, and in no other."""
    is_control: bool


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """All have joined."""

    ranks: list[RankIdentity]


class Died(msgspec.Struct, frozen=True, tag=True):
    rank: int
    process: str


class JoinRefused(msgspec.Struct, frozen=True, tag=True):
    """Not all have joined in time, or one has died, or what they say of themselves is contradictory."""

    problems: list[str] = []
    missing: list[int] = []
    timeout_s: float = 0.0
    died: Died | None = None


class Left(msgspec.Struct, frozen=True, tag=True):
    """A rank has left in good order, perhaps because of an error; it has completed so many calls."""

    rank: int
    num_calls: int
    error_text: str = ""
    traceback_text: str = ""


class Mismatch(msgspec.Struct, frozen=True, tag=True):
    first_rank: int
    first_call: str
    second_rank: int
    second_call: str


class TimedOut(msgspec.Struct, frozen=True, tag=True):
    call: str
    timeout_s: float
    missing: list[int]
    findings: list[str]


class Interrupted(msgspec.Struct, frozen=True, tag=True):
    """A rank gave up in the middle of a call, so that its next one would be out of step."""

    rank: int
    error_text: str
    traceback_text: str


class Question(msgspec.Struct, frozen=True, tag=True):
    """To the chief: how are all ranks? To a member: how are you?"""

    serial: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """One rank's answer."""

    serial: int
    rank: int
    num_calls: int
    """Calls begun so far."""
    call: str
    """The one it is in, or its last."""
    is_inside: bool


class Statuses(msgspec.Struct, frozen=True, tag=True):
    """The chief's answer: of those that answered it within a second."""

    serial: int
    statuses: list[Status]


class Notice(msgspec.Struct, frozen=True, tag=True):
    topic: str
    rank: int
    content: bytes


Content = bytes | bytearray | memoryview
Fault = Died | Mismatch | TimedOut | Interrupted
Message = Welcome | JoinRefused | Left | Fault | Question | Status | Statuses | Notice


def encode_message(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_message(content: Content) -> Message:
    """Raises `msgspec.MsgspecError`."""
    with _refusing_what_is_no_text():
        return msgspec.msgpack.decode(content, type=Message)  # type: ignore[no-any-return]


def decode_hello(content: Content) -> Hello:
    """Raises `msgspec.MsgspecError`."""
    with _refusing_what_is_no_text():
        return msgspec.msgpack.decode(content, type=Hello)


@contextlib.contextmanager
def _refusing_what_is_no_text() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
