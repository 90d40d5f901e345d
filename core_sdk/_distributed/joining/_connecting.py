"""A member's side of joining: it finds the chief, proves the key, and waits until all ranks have joined."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator

import msgspec

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.joining._handshake import GREETING_BYTES, REPLY_BYTES, ConnectorHandshake, WrongPeerError
from core_sdk._distributed.joining._rendezvous import ChiefAddress, Rendezvous
from core_sdk._distributed.transport._connection import Connection, Peer
from core_sdk._distributed.transport._frames import ConnectionEndedError, Frame, FrameKind
from core_sdk._distributed.transport._messages import (
    Died,
    Hello,
    JoinRefused,
    Welcome,
    decode_message,
)
from core_sdk._ground.descriptors import moved_up_socket
from core_sdk.errors import ContradictoryRanksError, JoinError, RankDiedError, RanksMissingError

_FIRST_PAUSE_S = 0.002
_LAST_PAUSE_S = 0.05
_CONNECT_TIMEOUT_S = 5.0
_INTRODUCTION_TIMEOUT_S = 5.0
# The chief should give up first, since it knows which ranks are missing. It may accept this rank just after it began to
# wait.
_CHIEF_GRACE_S = 5.0


def join_chief(
    rendezvous: Rendezvous, identity: RankIdentity, timeout_s: float, check: Callable[[], None] = lambda: None
) -> tuple[Peer, list[RankIdentity]]:
    """Blocks until every rank has joined. Returns the connection to the chief, and all ranks.

    Raises a `JoinError` or `RankDiedError`. `check` is called now and then; it raises when waiting has become useless.
    """
    data, control, address = _connect(rendezvous, identity, timeout_s, check)
    try:
        ranks = _await_welcome(control, identity, time.monotonic() + timeout_s + _CHIEF_GRACE_S, address, check)
        return Peer(ranks[0], data, control), ranks
    except BaseException:
        data.close()
        control.close()
        raise


def _connect(
    rendezvous: Rendezvous, identity: RankIdentity, timeout_s: float, check: Callable[[], None]
) -> tuple[Connection, Connection, ChiefAddress]:
    tried: dict[str, None] = {}
    deadline = time.monotonic() + timeout_s
    for _ in _pauses(deadline):
        check()
        address = rendezvous.look()
        if address is None:
            continue
        for target, open_socket in _targets(address, identity):
            try:
                data, control = _open_connections(open_socket, address.key, identity, deadline)
                return data, control, address
            except (OSError, WrongPeerError, ConnectionEndedError) as error:
                tried[f"{target}: {getattr(error, 'strerror', None) or error}"] = None
        if not any(_targets(address, identity)):
            tried[f"{address.process} can only be reached by ranks on its own host"] = None
    attempts = "; ".join(list(tried)[-8:]) or "nothing was found there"
    raise JoinError(
        f"rank {identity.rank} could not reach rank 0, the chief, through {rendezvous.where} within {timeout_s:g} s "
        f"({attempts}). Does rank 0 run and make its DistributedContext? Between nodes, chief_ip must be an address of "
        "its node."
    )


def _pauses(deadline: float) -> Iterator[None]:
    pause_s = _FIRST_PAUSE_S
    while True:
        yield
        if time.monotonic() >= deadline:
            return
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LAST_PAUSE_S)


def _targets(address: ChiefAddress, identity: RankIdentity) -> Iterator[tuple[str, Callable[[], socket.socket]]]:
    if address.unix_path is not None and address.host == identity.host:
        yield address.unix_path, lambda: _open_unix(address.unix_path or "")
    for host in address.tcp_hosts:
        yield f"{host}:{address.tcp_port}", lambda host=host: _open_tcp(host, address.tcp_port)  # type: ignore[misc]


def _open_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Uses the kernel's time-out: with Python's, a full queue would refuse the connection at once.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(_CONNECT_TIMEOUT_S), 0))
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return moved_up_socket(sock)


def _open_tcp(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S)
    if sock.getsockname() == sock.getpeername():
        # No process listens at this port: the system chose it as our own port, and the socket is connected to itself.
        sock.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    return moved_up_socket(sock)


def _open_connections(
    open_socket: Callable[[], socket.socket], key: bytes, identity: RankIdentity, deadline: float
) -> tuple[Connection, Connection]:
    member = uuid.uuid4().hex
    connections: list[Connection] = []
    try:
        for is_control in (False, True):
            connections.append(_introduce(open_socket(), key, Hello(identity, member, is_control), deadline))
        # Set before the welcome, so that a chief whose host vanishes without confirming the introduction is given up.
        connections[1].expect_answers()
    except BaseException:
        for connection in connections:
            connection.close()
        raise
    return connections[0], connections[1]


def _introduce(sock: socket.socket, key: bytes, hello: Hello, deadline: float) -> Connection:
    deadline = min(deadline, time.monotonic() + _INTRODUCTION_TIMEOUT_S)
    try:
        connector = ConnectorHandshake(key)
        with contextlib.suppress(ConnectionError):  # the read below finds out why
            sock.sendall(connector.knock())
        sock.sendall(connector.proof(_read(sock, GREETING_BYTES, deadline, "it does not greet")))
        connector.check(_read(sock, REPLY_BYTES, deadline, "it does not accept the key of this rank"))
        connection = Connection(sock, None if sock.family == socket.AF_UNIX else connector.seal())
        connection.send(Frame(FrameKind.HELLO, 0, 0, b"", msgspec.msgpack.encode(hello)), lambda: None)
    except BaseException:
        sock.close()
        raise
    return connection


def _read(sock: socket.socket, num_bytes: int, deadline: float, end: str) -> bytes:
    """Reads exactly `num_bytes`. Raises `WrongPeerError`, with the text `end` if the peer closes the connection."""
    content = b""
    while len(content) < num_bytes:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            chunk = sock.recv(num_bytes - len(content))
        except TimeoutError:
            raise WrongPeerError("it connects, and does not answer") from None
        except ConnectionError:  # it has closed without reading what we sent
            raise WrongPeerError(end) from None
        if not chunk:
            raise WrongPeerError(end)
        content += chunk
    return content


def _await_welcome(
    control: Connection, identity: RankIdentity, deadline: float, address: ChiefAddress, check: Callable[[], None]
) -> list[RankIdentity]:
    poller = select.poll()
    poller.register(control, select.POLLIN)
    while time.monotonic() < deadline:
        check()
        with contextlib.suppress(ConnectionEndedError):
            if (frame := control.receive_nowait()) is not None:
                return _welcomed(frame, identity)
            poller.poll(1000)
            continue
        raise JoinError(
            f"rank 0 ({address.process}) ended while rank {identity.rank} waited for the others to join. "
            "Look at the output of rank 0."
        )
    raise JoinError(
        f"rank 0 ({address.process}) let rank {identity.rank} in and has not answered since. "
        "Look at the output of rank 0."
    )


def _welcomed(frame: Frame, identity: RankIdentity) -> list[RankIdentity]:
    try:
        message = decode_message(frame.payload)
    except msgspec.MsgspecError as error:
        raise JoinError("rank 0 cannot be understood: it runs another version of Core SDK") from error
    match message:
        case Welcome(ranks):
            return ranks
        case JoinRefused(died=Died(rank, process)):
            raise RankDiedError(rank, process)
        case JoinRefused(missing=[_, *_] as missing, timeout_s=timeout_s):
            raise RanksMissingError(missing, identity.size, timeout_s)
        case JoinRefused(problems=problems):
            raise ContradictoryRanksError(problems)
    raise JoinError(f"rank 0 answered with {type(message).__name__}: it runs another version of Core SDK")
