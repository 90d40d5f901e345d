"""Those who connect to a group's chief without belonging to the group."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from processes import wait_for

from core_sdk._distributed._topology import this_rank
from core_sdk._distributed.joining._handshake import GREETING_BYTES, REPLY_BYTES, ConnectorHandshake
from core_sdk._distributed.joining._rendezvous import ChiefAddress, DirectoryRendezvous
from core_sdk._distributed.transport._connection import Connection
from core_sdk._distributed.transport._frames import Frame, FrameKind
from core_sdk._distributed.transport._messages import Hello
from core_sdk._ground.environment import RankPlace

WRONG_KEY = b"a key of somebody else's"


class Chief:
    """The address of a chief that waits for its ranks."""

    def __init__(self, meeting: str) -> None:
        rendezvous = DirectoryRendezvous(Path(meeting))
        wait_for(lambda: rendezvous.look() is not None)
        address = rendezvous.look()
        assert address is not None
        self.address: ChiefAddress = address

    def connect(self) -> socket.socket:
        if self.address.unix_path is not None:
            with contextlib.ExitStack() as failing:
                connection = failing.enter_context(socket.socket(socket.AF_UNIX))
                connection.settimeout(10)
                connection.connect(self.address.unix_path)
                failing.pop_all()
            return connection
        return socket.create_connection((self.address.tcp_hosts[0], self.address.tcp_port), timeout=10)

    def prove(self, connection: socket.socket, key: bytes) -> Connection:
        """Proves the key to the chief as a rank does, and checks the chief's proof."""
        connector = ConnectorHandshake(key)
        connection.sendall(connector.knock())
        connection.sendall(connector.proof(read(connection, GREETING_BYTES)))
        connector.check(read(connection, REPLY_BYTES))
        return Connection(connection, connector.seal() if self.address.unix_path is None else None)


def read(connection: socket.socket, num_bytes: int) -> bytes:
    content = b""
    while len(content) < num_bytes:
        chunk = connection.recv(num_bytes - len(content))
        if not chunk:
            raise ConnectionResetError("the chief hung up")
        content += chunk
    return content


class Bomb:
    """An object that leaves a file when it is unpickled."""

    def __init__(self, crater: Path) -> None:
        self.crater = crater

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.crater,)

    def pickled(self) -> bytes:
        """Returns a pickle that is known to work."""
        bomb = pickle.dumps(self)
        pickle.loads(bomb)
        self.crater.unlink()
        return bomb


def stay_silent(chief: Chief) -> list[socket.socket]:
    return [chief.connect()]


def stay_silent_after_greeting(chief: Chief) -> list[socket.socket]:
    connection = chief.connect()
    read(connection, GREETING_BYTES)
    connection.sendall(b"half a pro")
    return [connection]


def hang_up(chief: Chief) -> list[socket.socket]:
    chief.connect().close()
    return []


def half_close(chief: Chief) -> list[socket.socket]:
    connection = chief.connect()
    connection.shutdown(socket.SHUT_WR)
    return [connection]


def speak_http(chief: Chief) -> list[socket.socket]:
    connection = chief.connect()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-Long: " + 8000 * b"a" + b"\r\n\r\n")
    return [connection]


def send_garbage(chief: Chief) -> list[socket.socket]:
    connection = chief.connect()
    connection.sendall(100_000 * b"\xff")
    return [connection]


def hold_the_wrong_key(chief: Chief) -> list[socket.socket]:
    connection = chief.connect()
    with contextlib.suppress(OSError):
        chief.prove(connection, WRONG_KEY)
    return [connection]


def send_garbage_with_the_key(chief: Chief) -> list[socket.socket]:
    """Sends garbage after a valid proof, like a broken rank."""
    connection = chief.connect()
    chief.prove(connection, chief.address.key)
    connection.setblocking(True)
    connection.sendall(1000 * b"\xff")
    return [connection]


def introduce_itself_wrongly(chief: Chief) -> list[socket.socket]:
    connection = chief.connect()
    link = chief.prove(connection, chief.address.key)
    link.send(Frame(FrameKind.HELLO, 0, 0, b"", b"this is no hello"), lambda: None)
    return [connection]


def introduce_half_a_rank(chief: Chief) -> list[socket.socket]:
    """Introduces a rank whose second connection was refused: it goes, and will come again."""
    connection = chief.connect()
    place = this_rank(RankPlace(1, 2, 1, 2, 0, 1))
    hello = msgspec.msgpack.encode(Hello(place, "half a rank", False))
    link = chief.prove(connection, chief.address.key)
    link.send(Frame(FrameKind.HELLO, 0, 0, b"", hello), lambda: None)
    link.close()
    return []


def come_300_at_once(chief: Chief) -> list[socket.socket]:
    return [chief.connect() for _ in range(300)]


KINDS: dict[str, Callable[[Chief], list[socket.socket]]] = {
    "silent": stay_silent,
    "silent after greeting": stay_silent_after_greeting,
    "hangs up": hang_up,
    "half-open": half_close,
    "http": speak_http,
    "garbage": send_garbage,
    "wrong key": hold_the_wrong_key,
    "garbage with the key": send_garbage_with_the_key,
    "wrong introduction": introduce_itself_wrongly,
    "half a rank": introduce_half_a_rank,
    "300 at once": come_300_at_once,
}


@contextlib.contextmanager
def dripping(chief: Chief) -> Iterator[None]:
    """Runs a stranger that sends one byte now and then."""
    is_over = threading.Event()
    connection = chief.connect()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not is_over.wait(0.05):
                connection.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        time.sleep(0.1)
        yield
    finally:
        is_over.set()
        thread.join()
        connection.close()
