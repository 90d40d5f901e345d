"""The messages that ranks exchange besides the collectives."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.transport._encoding import Buffer
from core_sdk._distributed.transport._failure import RankFailure
from core_sdk._ground.decoding import msgpack_decoder


class Hello(msgspec.Struct, frozen=True):
    """The first frame of a connection."""

    identity: RankIdentity
    member: str
    """The id that the two connections of a rank have in common."""
    is_control: bool


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Tells a member that all ranks have joined."""

    ranks: list[RankIdentity]


class Died(msgspec.Struct, frozen=True, tag=True):
    """A connection to this rank has ended without a `Left`."""

    rank: int
    process: str


class JoinRefused(msgspec.Struct, frozen=True, tag=True):
    """Tells why the group does not form: ranks did not come in time, one has died, or they contradict each other."""

    problems: list[str] = []
    missing: list[int] = []
    timeout_s: float = 0.0
    died: Died | None = None


class Left(msgspec.Struct, frozen=True, tag=True):
    """A rank has left in good order after `num_calls` completed calls, perhaps because of an error of its script."""

    rank: int
    num_calls: int
    failure: RankFailure | None = None


class Mismatch(msgspec.Struct, frozen=True, tag=True):
    """The fault that two ranks have made different calls."""

    first_rank: int
    first_call: str
    second_rank: int
    second_call: str


class TimedOut(msgspec.Struct, frozen=True, tag=True):
    """The fault that a call has waited too long for the `missing` ranks. `findings` has a sentence about each."""

    call: str
    timeout_s: float
    missing: list[int]
    findings: list[str]


class StatusRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks every rank how far it is. The chief relays requests and answers between members."""

    asker: int
    serial: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """A rank's answer to the request `serial` of the rank `asker`."""

    asker: int
    serial: int
    rank: int
    num_calls: int
    """The number of calls that the rank has begun."""
    call: str
    """The call that the rank is in, or its last one."""
    is_inside: bool


class Notice(msgspec.Struct, frozen=True, tag=True):
    """A notice that `tell_chief()` or `tell_all()` sends."""

    topic: str
    rank: int
    content: bytes


Fault = Died | Mismatch | TimedOut | RankFailure
"""A reason why a group has ended. After a `RankFailure` within a call, the next calls of that rank would not match."""
Message = Welcome | JoinRefused | Left | Fault | StatusRequest | Status | Notice


def encode_message(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_message(content: Buffer) -> Message:
    """Decodes a message. Raises `msgspec.MsgspecError`."""
    return _decode(content, Message)  # type: ignore[no-any-return]


def decode_hello(content: Buffer) -> Hello:
    """Decodes an introduction. Raises `msgspec.MsgspecError`."""
    return _decode(content, Hello)  # type: ignore[no-any-return]


def _decode(content: Buffer, kind: Any) -> Any:
    try:
        return msgpack_decoder(kind)(content)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
