"""What channel threads tell each other, beside the collectives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's place among all, and the process that holds it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str
    """Ranks of the same host see the same files and sockets."""
    host_name: str
    pid: int
    python: str
    rank_of_all: int | None = None
    """Where `rank` counts in a smaller group."""

    @property
    def known_as(self) -> int:
        """The number by which the script knows it, in all groups."""
        return self.rank if self.rank_of_all is None else self.rank_of_all

    @property
    def process(self) -> str:
        return f"process {self.pid} on {self.host_name}"


class Hello(msgspec.Struct, frozen=True):
    """The first frame of a connection."""

    place: Place
    member: str
    """The same in both connections of one context, and in no other."""
    is_control: bool


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """All have joined."""

    places: list[Place]


class Died(msgspec.Struct, frozen=True, tag=True):
    rank: int
    process: str


class Refusal(msgspec.Struct, frozen=True, tag=True):
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
Trouble = Died | Mismatch | TimedOut | Interrupted
Message = Welcome | Refusal | Left | Trouble | Question | Status | Statuses | Notice


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
