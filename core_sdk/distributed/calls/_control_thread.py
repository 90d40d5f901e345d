"""The channel's thread: it sends and hears what no collective waits for, on connections of its own.

Through it a rank learns of another's death while its script computes, and answers while its script does not.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import selectors
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from core_sdk.distributed.calls._wakeup_pipe import WakeupPipe
from core_sdk.distributed.transport._connection import Connection
from core_sdk.distributed.transport._frames import ConnectionEndedError
from core_sdk.distributed.transport._messages import Message, decode_message, encode_message

logger = logging.getLogger("core_sdk.distributed")

_SEND_TIMEOUT_S = 5.0
_FINISH_INTERVAL_S = 0.01


class ControlThread:
    """Any thread and any signal handler may post: the thread itself sends."""

    def __init__(
        self,
        connections: Mapping[int, Connection],
        *,
        on_message: Callable[[int, Message], None],
        on_end: Callable[[int], Message | None],
    ) -> None:
        """The thread calls `on_message` with the sending rank, and `on_end` with a rank whose connection has ended.

        What `on_end` returns is sent to that rank, which may live: it may have sent what cannot be understood.
        """
        self._connections = dict(connections)
        self._on_message = on_message
        self._on_end = on_end
        self._posts: collections.deque[tuple[int, Message] | Callable[[], None]] = collections.deque()
        self._wakeup = WakeupPipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        for rank, connection in self._connections.items():
            connection.expect_answers()
            self._selector.register(connection, selectors.EVENT_READ, rank)
        self._ranks = tuple(self._connections)
        self._is_stopping = False
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="core-sdk-channel", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, rank: int, message: Message) -> None:
        """Sends it soon; drops it if the rank is gone."""
        self._posts.append((rank, message))
        self._wakeup.wake()

    def post_to_all(self, message: Message, but: int | None = None) -> None:
        """Sends it soon to every rank that this one is connected to."""
        self._posts.extend((rank, message) for rank in self._ranks if rank != but)
        self._wakeup.wake()

    def call(self, action: Callable[[], None]) -> None:
        """Has the thread call `action` soon."""
        self._posts.append(action)
        self._wakeup.wake()

    def stop(self, timeout_s: float) -> None:
        """Sends what was posted, and closes the connections once it has arrived."""
        self._deadline = time.monotonic() + timeout_s
        self._is_stopping = True
        self._wakeup.wake()
        # The garbage collector runs in any thread, this one included, and may close a forgotten group.
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def close_inherited(self) -> None:
        """In a forked child: the connections belong to the parent, and must end with it."""
        for connection in self._connections.values():
            connection.close()
        self._selector.close()
        self._wakeup.close_inherited()

    def _run(self) -> None:
        try:
            # What came together with a peer's last word of joining was read with it, and makes no socket readable.
            for rank in self._ranks:
                self._hear(rank)
            while self._connections or not self._is_stopping:
                ready = self._selector.select()
                # In this order: a stop that comes later wakes the next turn, and what was posted before it is sent.
                self._wakeup.forget()
                is_last = self._is_stopping
                self._send_posts()
                if is_last:
                    self._finish_sending()
                    break
                for key, _ in ready:
                    if key.data is not None:
                        self._hear(key.data)
        finally:
            for connection in self._connections.values():
                connection.end_sending()
                connection.close()
            self._selector.close()
            self._wakeup.close()

    def _finish_sending(self) -> None:
        """A TCP connection that is closed before all was read from it may lose what the other side has not yet read."""
        for connection in self._connections.values():
            connection.end_sending()
        while time.monotonic() < self._deadline and any(
            connection.num_bytes_on_their_way() for connection in self._connections.values()
        ):
            for key, _ in self._selector.select(_FINISH_INTERVAL_S):
                if key.data is not None:
                    self._discard(key.data)

    def _discard(self, rank: int) -> None:
        try:
            while self._connections[rank].receive_nowait() is not None:
                pass
        except ConnectionEndedError:
            connection = self._connections.pop(rank)
            self._selector.unregister(connection)
            connection.close()

    def _send_posts(self) -> None:
        while self._posts:
            post = self._posts.popleft()
            if callable(post):
                post()
            elif (connection := self._connections.get(post[0])) is not None:
                self._send(post[0], connection, post[1])

    def _send(self, rank: int, connection: Connection, message: Message) -> None:
        try:
            connection.send_message(encode_message(message), _SEND_TIMEOUT_S)
        except ConnectionEndedError:
            # What the rank sent before it went is still there.
            self._hear(rank)
            if rank in self._connections:
                self._end(rank)

    def _hear(self, rank: int) -> None:
        try:
            while rank in self._connections and (frame := self._connections[rank].receive_nowait()) is not None:
                self._on_message(rank, decode_message(frame.payload))
        except (ConnectionEndedError, msgspec.MsgspecError):
            self._end(rank)

    def _end(self, rank: int) -> None:
        connection = self._connections.pop(rank)
        self._selector.unregister(connection)
        last_message = self._on_end(rank)
        with contextlib.suppress(ConnectionEndedError):
            if last_message is not None:
                connection.send_message(encode_message(last_message), timeout_s=0.0)
        connection.close()
