"""A member's side of joining: finds the chief, proves the key, and waits until all have come."""

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

from core_sdk.distributed._frames import Frame, Kind, LinkEndedError
from core_sdk.distributed._handshake import GREETING_BYTES, REPLY_BYTES, Connector, WrongPeerError
from core_sdk.distributed._link import Link
from core_sdk.distributed._messages import Died, Hello, Message, Place, Refusal, Welcome, decode_message
from core_sdk.distributed._reception import Peer
from core_sdk.distributed._rendezvous import Address, Rendezvous
from core_sdk.errors import ChiefNotFoundError, ContradictoryRanksError, JoinError, RankDiedError, RanksMissingError

_FIRST_PAUSE_S = 0.002
_LAST_PAUSE_S = 0.05
_CONNECT_TIMEOUT_S = 5.0
_INTRODUCTION_TIMEOUT_S = 5.0
# The chief began to wait before it let us in, and it is the one who knows who is missing.
_CHIEF_GRACE_S = 5.0


def join_chief(
    rendezvous: Rendezvous, place: Place, timeout_s: float, check: Callable[[], None] = lambda: None
) -> tuple[Peer, list[Place]]:
    """The chief, and all places. Blocks until every rank has joined; raises a `JoinError`.

    `check` is called now and then, and raises when it is no use to wait any longer.
    """
    data, control, address = _connect(rendezvous, place, timeout_s, check)
    try:
        places = _await_welcome(control, place, time.monotonic() + timeout_s + _CHIEF_GRACE_S, address, check)
        return Peer(places[0], data, control), places
    except BaseException:
        data.close()
        control.close()
        raise


def _connect(
    rendezvous: Rendezvous, place: Place, timeout_s: float, check: Callable[[], None]
) -> tuple[Link, Link, Address]:
    tried: dict[str, None] = {}
    deadline = time.monotonic() + timeout_s
    for _ in _pauses(deadline):
        check()
        address = rendezvous.look()
        if address is None:
            continue
        for target, open_socket in _targets(address, place):
            try:
                data, control = _open_links(open_socket, address.key, place, deadline)
                return data, control, address
            except (OSError, WrongPeerError, LinkEndedError) as error:
                tried[f"{target}: {getattr(error, 'strerror', None) or error}"] = None
        if not any(_targets(address, place)):
            tried[f"{address.process} can only be reached by ranks on its own host"] = None
    raise ChiefNotFoundError(place.rank, rendezvous.where, list(tried)[-8:], timeout_s)


def _pauses(deadline: float) -> Iterator[None]:
    pause_s = _FIRST_PAUSE_S
    while True:
        yield
        if time.monotonic() >= deadline:
            return
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LAST_PAUSE_S)


def _targets(address: Address, place: Place) -> Iterator[tuple[str, Callable[[], socket.socket]]]:
    if address.unix_path is not None and address.host == place.host:
        yield address.unix_path, lambda: _open_unix(address.unix_path or "")
    for host in address.tcp_hosts:
        yield f"{host}:{address.tcp_port}", lambda host=host: _open_tcp(host, address.tcp_port)  # type: ignore[misc]


def _open_unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Blocking, with the kernel's own time-out: with Python's it would be refused wherever others stand in line.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(_CONNECT_TIMEOUT_S), 0))
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_tcp(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S)
    if connection.getsockname() == connection.getpeername():
        # Nobody listens, and the system gave us that very port to connect from.
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    return connection


def _open_links(
    open_socket: Callable[[], socket.socket], key: bytes, place: Place, deadline: float
) -> tuple[Link, Link]:
    member = uuid.uuid4().hex
    links: list[Link] = []
    try:
        for is_control in (False, True):
            links.append(_introduce(open_socket(), key, Hello(place, member, is_control), deadline))
        # Now already: a chief whose host vanishes before it has confirmed the introduction is given up, too.
        links[1].expect_answers()
    except BaseException:
        for link in links:
            link.close()
        raise
    return links[0], links[1]


def _introduce(connection: socket.socket, key: bytes, hello: Hello, deadline: float) -> Link:
    deadline = min(deadline, time.monotonic() + _INTRODUCTION_TIMEOUT_S)
    try:
        connector = Connector(key)
        with contextlib.suppress(ConnectionError):  # reading says what there is to say
            connection.sendall(connector.knock())
        connection.sendall(connector.proof(_read(connection, GREETING_BYTES, deadline, "it does not greet")))
        connector.check(_read(connection, REPLY_BYTES, deadline, "it does not accept the key of this rank"))
        link = Link(connection, None if connection.family == socket.AF_UNIX else connector.seal())
        link.send(Frame(Kind.HELLO, 0, 0, b"", msgspec.msgpack.encode(hello)), lambda: None)
    except BaseException:
        connection.close()
        raise
    return link


def _read(connection: socket.socket, num_bytes: int, deadline: float, end: str) -> bytes:
    """`end` is what it means if the connection is closed."""
    content = b""
    while len(content) < num_bytes:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            chunk = connection.recv(num_bytes - len(content))
        except TimeoutError:
            raise WrongPeerError("it connects, and does not answer") from None
        except ConnectionError:  # it has closed without reading what we said
            raise WrongPeerError(end) from None
        if not chunk:
            raise WrongPeerError(end)
        content += chunk
    return content


def _await_welcome(
    control: Link, place: Place, deadline: float, address: Address, check: Callable[[], None]
) -> list[Place]:
    poller = select.poll()
    poller.register(control, select.POLLIN)
    while time.monotonic() < deadline:
        check()
        with contextlib.suppress(LinkEndedError):
            if (frame := control.receive_nowait()) is not None:
                return _welcomed(frame, place)
            poller.poll(1000)
            continue
        raise JoinError(
            f"rank 0 ({address.process}) ended while rank {place.rank} waited for the others to join. "
            "Look at the output of rank 0."
        )
    raise JoinError(
        f"rank 0 ({address.process}) let rank {place.rank} in and has not answered since. Look at the output of rank 0."
    )


def _welcomed(frame: Frame, place: Place) -> list[Place]:
    match _decoded(frame):
        case Welcome(places):
            return places
        case Refusal(died=Died(rank, process)):
            raise RankDiedError(rank, process)
        case Refusal(missing=[_, *_] as missing, timeout_s=timeout_s):
            raise RanksMissingError(missing, place.size, timeout_s)
        case Refusal(problems=problems):
            raise ContradictoryRanksError(problems)
        case message:
            raise JoinError(f"rank 0 answered with {type(message).__name__}: it runs another version of Core SDK")


def _decoded(frame: Frame) -> Message:
    try:
        return decode_message(frame.payload)
    except msgspec.MsgspecError as error:
        raise JoinError("rank 0 cannot be understood: it runs another version of Core SDK") from error
