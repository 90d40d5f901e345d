"""The channel's thread, which sends and receives the messages that no collective waits for, on its own connections.

Through it a rank learns of another's death, and answers questions, while its script computes.
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

from core_sdk._distributed.calls._wakeup_pipe import WakeupPipe
from core_sdk._distributed.transport._connection import Connection
from core_sdk._distributed.transport._frames import ConnectionEndedError
from core_sdk._distributed.transport._messages import Message, decode_message, encode_message

logger = logging.getLogger("core_sdk.distributed")

_SEND_TIMEOUT_S = 5.0
_FINISH_INTERVAL_S = 0.01


class ControlThread:
    """A thread that sends posted messages and receives the peers' messages. Any thread and signal handler may post."""

    def __init__(
        self,
        connections: Mapping[int, Connection],
        *,
        on_message: Callable[[int, Message], None],
        on_end: Callable[[int], Message | None],
    ) -> None:
        """The thread calls `on_message` with the sending rank, and `on_end` with a rank whose connection has ended.

        A message that `on_end` returns is sent to that rank. It may be alive, if it has sent an invalid message.
        """
        self._connections = dict(connections)
        self._on_message = on_message
        self._on_end = on_end
        self._posts: collections.deque[tuple[int, Message] | Callable[[], None]] = collections.deque()
        self._wakeup = WakeupPipe()
        # It has no descriptor of its own, which a script could close.
        self._selector = selectors.PollSelector()
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
        """Sends a message soon. Drops it if the rank is gone. Does not block."""
        self._posts.append((rank, message))
        self._wakeup.wake()

    def post_to_all(self, message: Message, but: int | None = None) -> None:
        """Sends a message soon to every connected rank except `but`. Does not block."""
        self._posts.extend((rank, message) for rank in self._ranks if rank != but)
        self._wakeup.wake()

    def call(self, action: Callable[[], None]) -> None:
        """Makes the thread call `action` soon. Does not block."""
        self._posts.append(action)
        self._wakeup.wake()

    def stop(self, timeout_s: float) -> None:
        """Sends what was posted, and closes the connections after it has arrived. Blocks for `timeout_s` at most."""
        self._deadline = time.monotonic() + timeout_s
        self._is_stopping = True
        self._wakeup.wake()
        # The garbage collector may close a forgotten group in any thread, including the control thread.
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def close_inherited(self) -> None:
        """Closes the connections in a forked child. They belong to the parent, and must end with it."""
        for connection in self._connections.values():
            connection.close()
        self._selector.close()
        self._wakeup.close_inherited()

    def _run(self) -> None:
        try:
            # Messages that came together with a peer's last message of joining are in the buffer already: the socket
            # does not become readable for them.
            for rank in self._ranks:
                self._hear(rank)
            while self._connections or not self._is_stopping:
                ready = self._selector.select()
                # Clears the wakeup before it looks for a stop. A later stop wakes the next turn, which sends all posts
                # before it.
                self._wakeup.forget()
                if not self._wakeup.is_ours() and self._wakeup in self._selector.get_map():
                    self._selector.unregister(self._wakeup)
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
        """Waits until the peers have received all data, and discards what they send meanwhile.

        Closing a TCP connection with unread data may destroy data that the peer has not yet read.
        """
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
            # Messages that the rank sent before it ended can still be read.
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
