"""Real bytes of ranks with something done to them, and the places where they arrive."""

from __future__ import annotations

import array
import contextlib
import os
import pickle
import random
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from distributed.strangers import Bomb

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.joining._accepting import IncomingConnection
from core_sdk._distributed.joining._handshake import ConnectorHandshake, WrongPeerError
from core_sdk._distributed.transport._connection import Connection
from core_sdk._distributed.transport._encoding import Contribution, RankFailure
from core_sdk._distributed.transport._frames import CollectiveOperation, ConnectionEndedError, Frame, FrameKind, Seal
from core_sdk._distributed.transport._messages import (
    Died,
    Hello,
    Left,
    Notice,
    decode_message,
    encode_message,
)

KEY = b"a key of 32 bytes, or thereabout"
REFUSALS = (OSError, WrongPeerError, ConnectionEndedError, msgspec.MsgspecError)
_PLACE = RankIdentity(
    rank=1,
    size=2,
    local_rank=1,
    local_size=2,
    cross_rank=0,
    cross_size=1,
    host="a host",
    host_name="its name",
    pid=7,
    python="3.11",
)


class Corpus:
    """The frames that ranks send, in pieces, with a pickle that leaves a trace when it is loaded."""

    def __init__(self, crater: Path) -> None:
        bomb = Bomb(crater).pickled()
        self.frames = [
            Frame(FrameKind.HELLO, 0, 0, b"", msgspec.msgpack.encode(Hello(_PLACE, "member", False))),
            Frame(FrameKind.VALUE, CollectiveOperation.ALLGATHER, 1, b"train.py:7", bomb),
            Frame(FrameKind.VALUE, CollectiveOperation.BROADCAST, 2, b"train.py:8", bomb + pickle.dumps(bytes(3000))),
            Frame(
                FrameKind.FAILURE,
                CollectiveOperation.GATHER,
                3,
                b"",
                Contribution.of_error(1, ValueError("no")).content,
            ),
            Frame(FrameKind.MESSAGE, 0, 0, b"", encode_message(Notice("stop", 1, bomb))),
            Frame(FrameKind.MESSAGE, 0, 0, b"", encode_message(Left(1, 2, RankFailure(1, "an error", "a traceback")))),
        ]
        self.messages = [
            encode_message(Left(1, 2, RankFailure(1, "an error", "a traceback"))),
            encode_message(Died(1, "process 7")),
            encode_message(Notice("stop", 1, bomb)),
        ]
        self.unix = [said(frame, None) for frame in self.frames]

    def sealed(self) -> list[bytes]:
        """Returns the pieces with the codes of one connection."""
        seal = Seal(send_key=b"one", receive_key=b"other")
        return [said(frame, seal) for frame in self.frames]


def said(frame: Frame, seal: Seal | None) -> bytes:
    near, far = socket.socketpair()
    with near, far:
        Connection(near, seal).send(frame, lambda: None)
        return far.recv(1 << 20)


def flip_bits(generator: random.Random, pieces: list[bytes]) -> None:
    at = generator.randrange(len(pieces))
    content = bytearray(pieces[at] or b"x")
    for _ in range(generator.randrange(1, 4)):
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    pieces[at] = bytes(content)


def truncate(generator: random.Random, pieces: list[bytes]) -> None:
    at = generator.randrange(len(pieces))
    pieces[at] = pieces[at][: generator.randrange(len(pieces[at]) + 1)]


def lie_about_lengths(generator: random.Random, pieces: list[bytes]) -> None:
    at = generator.randrange(len(pieces))
    length = generator.choice([0, 1, 1 << 16, 1 << 29, 1 << 30, (1 << 30) + 1, 1 << 63, (1 << 64) - 1])
    pieces[at] = pieces[at][:12] + length.to_bytes(8, "big") + pieces[at][20:]


def insert(generator: random.Random, pieces: list[bytes]) -> None:
    at = generator.randrange(len(pieces))
    where = generator.randrange(len(pieces[at]) + 1)
    pieces[at] = pieces[at][:where] + generator.randbytes(generator.randrange(1, 40)) + pieces[at][where:]


def repeat(generator: random.Random, pieces: list[bytes]) -> None:
    at = generator.randrange(len(pieces))
    pieces.insert(at, pieces[at])


def reorder(generator: random.Random, pieces: list[bytes]) -> None:
    generator.shuffle(pieces)


def say_anything(generator: random.Random, pieces: list[bytes]) -> None:
    pieces[generator.randrange(len(pieces))] = generator.randbytes(generator.randrange(120))


MUTATIONS: Sequence[Callable[[random.Random, list[bytes]], None]] = (
    flip_bits,
    truncate,
    lie_about_lengths,
    insert,
    repeat,
    reorder,
    say_anything,
)


def mutated(generator: random.Random, pieces: list[bytes]) -> bytes:
    pieces = generator.sample(pieces, generator.randrange(1, len(pieces) + 1))
    for _ in range(generator.randrange(1, 3)):
        generator.choice(MUTATIONS)(generator, pieces)
    return b"".join(pieces) or b"x"


class Tally(NamedTuple):
    """Counts how many inputs were understood and how many were refused."""

    understood: int
    refused: int


def feed_link(generator: random.Random, pieces: list[bytes], seal: Seal | None) -> Tally:
    """Feeds mutated pieces to a link. Descriptors that nobody has asked for may come along."""
    near, far = socket.socketpair()
    link = Connection(far, seal)
    understood = 0
    with near, contextlib.closing(link):
        content = mutated(generator, pieces)
        descriptors = [near.fileno()] * generator.randrange(3)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        near.sendmsg([content], rights)
        near.shutdown(socket.SHUT_WR)
        try:
            while link.receive_nowait() is not None:
                understood += 1
        except ConnectionEndedError:
            return Tally(understood, 1)
    return Tally(understood, 0)


def feed_reception(generator: random.Random, pieces: list[bytes], *, holds_key: bool) -> Tally:
    """Feeds mutated pieces to a chief that waits for its ranks."""
    near, far = socket.socketpair()
    with near, far:
        newcomer = IncomingConnection(far, KEY)
        connector = ConnectorHandshake(KEY if holds_key else os.urandom(32))
        proof = connector.knock() + connector.proof(near.recv(1024))
        near.send(proof + mutated(generator, pieces) if holds_key else mutated(generator, [proof, *pieces]))
        near.shutdown(socket.SHUT_WR)
        understood = 0
        try:
            while True:
                understood += newcomer.read() is not None
        except REFUSALS:
            return Tally(understood, 1)


def feed_decoder(generator: random.Random, messages: list[bytes]) -> Tally:
    """Feeds mutated messages to the decoder of the channel's thread."""
    try:
        decode_message(mutated(generator, messages))
    except msgspec.MsgspecError:
        return Tally(0, 1)
    return Tally(1, 0)
