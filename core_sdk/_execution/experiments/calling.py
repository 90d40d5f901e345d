"""Calls to the master of a home: a request as one line over its Unix socket, and one line back."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

from core_sdk._execution.experiments.protocol import GetStatus, MasterAnswer, MasterRequest, Outcome
from core_sdk._ground.alive import is_alive, signed_by
from core_sdk._ground.environment import agent_variables
from core_sdk._ground.environment.names import HOME_VARIABLE
from core_sdk._ground.typed_lines import from_line, to_line
from core_sdk._home.folders import Home
from core_sdk.errors import MasterError, MasterRefusedError, MasterSilentError

logger = logging.getLogger("core_sdk.master")

A = TypeVar("A", bound=MasterAnswer)

_START_S = 30.0
_PAUSE_S = 0.01
_ANSWER_S = 60.0
_SILENCE_S = 2.0
"""The time after which a caller is told whom it waits for, or gets no answer if it can do without."""
# Held while a master is started, so that a call waits for a thread that starts one early.
_starting = threading.Lock()


def lock_path(home_root: Path) -> Path:
    """Returns the path of the file that a master locks while it lives."""
    return Home(home_root).master_lock


def log_path(home_root: Path) -> Path:
    """Returns the path of the master's log."""
    return home_root / "master.log"


@contextlib.contextmanager
def socket_address(home_root: Path) -> Iterator[str]:
    """Yields an address of the master's socket, which is valid within the block. The path may be too long for one."""
    directory = os.open(home_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/master.sock" if sys.platform == "linux" else str(home_root / "master.sock")
    finally:
        os.close(directory)


def is_master_running(home_root: Path) -> bool:
    return is_alive(lock_path(home_root))


def call(home_root: Path, request: MasterRequest[A], *, options: Sequence[str] = ()) -> A:
    """Asks the master of this home, and returns its answer. Starts a master with these `options` if none runs.

    Blocks until the answer, and asks again if a master dies before it answers, since a repeated request changes
    nothing. Raises `MasterError` with the master's words, or if the master cannot be reached.
    """
    deadline = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(ConnectionError):
            if (connection := _connect(home_root)) is not None:
                return _ask(home_root, connection, request)
        if time.monotonic() > deadline:
            raise MasterError(f"it did not start within {_START_S:g} s; {log_path(home_root)} may say why")
        with _starting:
            if not is_master_running(home_root):
                start_master(home_root, options)
        time.sleep(_PAUSE_S)


def ensure_master(home_root: Path) -> None:
    """Starts a master if none runs. Without one no experiment goes on. Raises `MasterError`."""
    if not is_master_running(home_root):
        call(home_root, GetStatus())


def start_early(home_root: Path) -> None:
    """Starts a master in a thread, while the caller prepares its request. A failure shows when the caller asks."""

    def start() -> None:
        with contextlib.suppress(MasterError, OSError):
            ensure_master(home_root)

    threading.Thread(target=start, name="core-sdk-start-master", daemon=True).start()


def call_running(home_root: Path, request: MasterRequest[A], *, is_patient: bool = True) -> A | None:
    """Asks the master of this home like `call`, but returns None if no master runs. Raises `MasterError`.

    A caller that `is_patient` waits for an answer like `call`. One that is not gets `MasterSilentError` after two
    seconds.
    """
    connection = _connect(home_root)
    try:
        return None if connection is None else _ask(home_root, connection, request, is_patient=is_patient)
    except ConnectionError:
        return None


def start_master(home_root: Path, options: Sequence[str]) -> None:
    """Starts a master in the background, and returns when it listens. If several start at once, only one stays.

    Raises `MasterError` if it could not start.
    """
    if begin_master(home_root, options).wait():
        raise MasterError(f"it failed as it started; {log_path(home_root)} says why")


def begin_master(home_root: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Begins to start a master in the background. The returned process ends when the master listens."""
    home_root.mkdir(mode=0o700, parents=True, exist_ok=True)
    private = functools.partial(os.open, mode=0o600)
    with open(log_path(home_root), "ab", opener=private) as log:
        # `-P`: the user's working directory must not shadow our modules.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "core_sdk._execution.master", *options],
            env=agent_variables() | {HOME_VARIABLE: str(home_root.absolute())},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def await_end_of_master(home_root: Path) -> None:
    """Blocks until no master runs."""
    while is_master_running(home_root):
        time.sleep(_PAUSE_S)


def _ask(home_root: Path, connection: socket.socket, request: MasterRequest[A], *, is_patient: bool = True) -> A:
    """Sends a request, returns the answer, and closes the connection.

    Raises `MasterError`, and `ConnectionError` if the master dies.
    """
    with connection:
        connection.settimeout(_ANSWER_S)
        try:
            connection.sendall(to_line(request))
        except TimeoutError:
            raise _silent(home_root, _ANSWER_S) from None
        connection.settimeout(_SILENCE_S)
        line = _read_line(home_root, connection, is_patient=is_patient)
    try:
        outcome = from_line(line, Outcome)
        if outcome.ok:
            return cast("A", from_line(line, request.answer_type))
    except ValueError as error:
        raise MasterError(f"its answer is not understood ({error}): it may be of another version") from None
    raise (MasterRefusedError if outcome.is_refused else MasterError)(outcome.error)


def _read_line(home_root: Path, connection: socket.socket, *, is_patient: bool) -> bytes:
    line, began, is_told = b"", time.monotonic(), False
    while not line.endswith(b"\n"):
        try:
            received = connection.recv(1 << 16)
        except TimeoutError:
            waited_s = time.monotonic() - began
            if not is_patient or waited_s > _ANSWER_S:
                raise _silent(home_root, waited_s) from None
            if not is_told:
                logger.warning("%s It is waited for, for %.0f s.", _silent(home_root, waited_s), _ANSWER_S)
                is_told = True
            continue
        if not received:
            raise ConnectionResetError("it ended before it answered")
        line += received
    return line


def _silent(home_root: Path, waited_s: float) -> MasterSilentError:
    import psutil  # slow to import, and seldom needed

    pid = signed_by(lock_path(home_root))
    command, is_suspended = "", False
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid or 0)
        command, is_suspended = shlex.join(process.cmdline()), process.status() == psutil.STATUS_STOPPED
    return MasterSilentError(pid, command, waited_s, is_suspended=is_suspended)


def _connect(home_root: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_SILENCE_S)
    try:
        with socket_address(home_root) as address:
            connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except (TimeoutError, BlockingIOError):  # so many wait for it that no more may
        connection.close()
        raise _silent(home_root, 0) from None
    except OSError as error:
        connection.close()
        raise MasterError(f"its socket {home_root / 'master.sock'} cannot be used: {error.strerror}") from error
    return connection
