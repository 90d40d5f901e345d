"""The messages that ranks exchange beside the collectives."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk.distributed._topology import RankIdentity
from core_sdk.distributed.transport._encoding import Failure
from core_sdk.distributed.transport._memory_file import Buffer


class Hello(msgspec.Struct, frozen=True):
    """The first frame of a connection."""

    identity: RankIdentity
    member: str
    """An id that the two connections of one rank share."""
    is_control: bool


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """All ranks have joined."""

    ranks: list[RankIdentity]


class Died(msgspec.Struct, frozen=True, tag=True):
    """A connection to this rank has ended without a `Left`."""

    rank: int
    process: str


class JoinRefused(msgspec.Struct, frozen=True, tag=True):
    """The group does not form: some ranks did not come in time, one has died, or they contradict each other."""

    problems: list[str] = []
    missing: list[int] = []
    timeout_s: float = 0.0
    died: Died | None = None


class Left(msgspec.Struct, frozen=True, tag=True):
    """A rank has left in good order after `num_calls` completed calls, perhaps because of an error of its script."""

    rank: int
    num_calls: int
    failure: Failure | None = None


class Mismatch(msgspec.Struct, frozen=True, tag=True):
    """Two ranks have made different calls."""

    first_rank: int
    first_call: str
    second_rank: int
    second_call: str


class TimedOut(msgspec.Struct, frozen=True, tag=True):
    """A call has waited for the `missing` ranks for too long; `findings` has a sentence about each."""

    call: str
    timeout_s: float
    missing: list[int]
    findings: list[str]


class StatusRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks every rank how far it is. The chief passes requests and answers on between members."""

    asker: int
    serial: int


class Status(msgspec.Struct, frozen=True, tag=True):
    """One rank's answer to the request `serial` of the rank `asker`."""

    asker: int
    serial: int
    rank: int
    num_calls: int
    """The number of calls that it has begun."""
    call: str
    """The call that it is in, or its last one."""
    is_inside: bool


class Notice(msgspec.Struct, frozen=True, tag=True):
    """What `tell_chief()` and `tell_all()` send."""

    topic: str
    rank: int
    content: bytes


Fault = Died | Mismatch | TimedOut | Failure
"""What ends a group. A `Failure` has interrupted a rank within a call, so that its next call would be out of step."""
Message = Welcome | JoinRefused | Left | Fault | StatusRequest | Status | Notice


def encode_message(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_message(content: Buffer) -> Message:
    """Raises `msgspec.MsgspecError`."""
    return _decode(content, Message)  # type: ignore[no-any-return]


def decode_hello(content: Buffer) -> Hello:
    """Raises `msgspec.MsgspecError`."""
    return _decode(content, Hello)  # type: ignore[no-any-return]


def _decode(content: Buffer, kind: Any) -> Any:
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
