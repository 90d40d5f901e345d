"""The master's socket. Each connection sends one request and gets one answer."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from core_sdk._execution.experiments.calling import socket_address
from core_sdk._execution.experiments.protocol import PROTOCOL, AnyRequest, MasterAnswer, Outcome, Sender
from core_sdk._ground.typed_lines import from_line, to_line
from core_sdk._ground.version import __version__
from core_sdk.errors import CoreSDKError, MasterError, MasterRefusedError

_BACKLOG = 64
_MAX_REQUEST_BYTES = 64 << 20
_REQUEST_S = 30.0
_LAST_ANSWER_S = 1.0


class Server:
    """Listens on the master's socket from construction to `close`. Only the user who runs the master can connect."""

    def __init__(self, home_root: Path, answer: Callable[[AnyRequest], MasterAnswer]) -> None:
        """`answer` is called in a thread for each request; it may raise `CoreSDKError`, `ValueError` or `OSError`."""
        self._path = home_root / "master.sock"
        self._answer = answer
        self._path.unlink(missing_ok=True)  # left by a master that was killed, since we hold the lock
        self._socket = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with socket_address(home_root) as address:
                self._socket.bind(address)
        finally:
            os.umask(before)
        self._socket.listen(_BACKLOG)
        self._answering: set[threading.Thread] = set()
        self._accepting = threading.Thread(target=self._accept, name="core-sdk-master-socket", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stops listening. Clients that have connected before still get an answer."""
        self._path.unlink(missing_ok=True)
        self._socket.shutdown(socket.SHUT_RDWR)
        # The thread must end first: it could otherwise accept from whatever gets the descriptor's number next.
        self._accepting.join()
        self._socket.close()
        for thread in list(self._answering):
            thread.join(_LAST_ANSWER_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            thread = threading.Thread(target=self._serve, args=[connection], daemon=True)
            self._answering.add(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_REQUEST_S)
            with connection.makefile("rb") as requests:
                line = requests.readline(_MAX_REQUEST_BYTES)
            connection.sendall(self._answer_line(line))
        self._answering.discard(threading.current_thread())

    def _answer_line(self, line: bytes) -> bytes:
        try:
            sender = from_line(line, Sender)
            if sender.protocol != PROTOCOL:
                raise MasterRefusedError(
                    f"it is of version {__version__}, and does not understand version {sender.version}; "
                    "`core-sdk master down` ends it, and the next command starts the new one. Trials go on meanwhile"
                )
            return to_line({"ok": True, **msgspec.to_builtins(self._answer(from_line(line, AnyRequest)))})
        except MasterError as error:
            return to_line(Outcome(ok=False, error=error.reason, is_refused=isinstance(error, MasterRefusedError)))
        except (CoreSDKError, ValueError, KeyError, AttributeError, TypeError, OSError) as error:
            return to_line(Outcome(ok=False, error=str(error) or type(error).__name__))
