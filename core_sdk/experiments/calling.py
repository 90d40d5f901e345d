"""Calls to the master of a home: one JSON line over its Unix socket, and one line back.

{"protocol": 1, "version": "0.1.0", "do": "want", "experiment_id": 3, "state": "PAUSED", "by": "…"}
{"ok": true, …}    {"ok": false, "error": "…"}
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core_sdk._version import __version__
from core_sdk.alive import is_alive
from core_sdk.environment import agent_variables
from core_sdk.environment.names import HOME_VARIABLE
from core_sdk.errors import MasterError

PROTOCOL = 1
_START_S = 30.0
_PAUSE_S = 0.01
_ANSWER_S = 60.0


def lock_path(home_root: Path) -> Path:
    """Locked by the master while it lives."""
    return home_root / "master.lock"


def log_path(home_root: Path) -> Path:
    """What the master has to say, of itself and of what it did."""
    return home_root / "master.log"


@contextlib.contextmanager
def socket_address(home_root: Path) -> Any:
    """The address of the master's socket, for as long as the block lasts; a path may be too long for one."""
    directory = os.open(home_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/master.sock" if sys.platform == "linux" else str(home_root / "master.sock")
    finally:
        os.close(directory)


def is_master_running(home_root: Path) -> bool:
    return is_alive(lock_path(home_root))


def call(home_root: Path, do: str, *, options: Sequence[str] = (), **arguments: Any) -> dict[str, Any]:
    """What the master of this home answers; one is started, with these `options`, where none runs.

    Blocks until the answer. Raises `MasterError` with the master's words, or if it cannot be reached.
    """
    deadline = time.monotonic() + _START_S
    process = None
    while (connection := _connect(home_root)) is None:
        if process is None and not is_master_running(home_root):
            process = _start_master(home_root, options)
        elif process is not None and process.poll() is not None:
            if process.returncode:
                raise MasterError(f"it failed as it started; {log_path(home_root)} says why")
            process = None  # another one was first, and has perhaps ended since
        if time.monotonic() > deadline:
            raise MasterError(f"it did not start within {_START_S:g} s; {log_path(home_root)} may say why")
        time.sleep(_PAUSE_S)
    if process is not None:
        process.returncode = 0  # it outlives us, and nobody is to be warned of that
    return ask(connection, do, **arguments)


def call_running(home_root: Path, do: str, **arguments: Any) -> dict[str, Any] | None:
    """As `call`; None where no master runs."""
    connection = _connect(home_root)
    return None if connection is None else ask(connection, do, **arguments)


def _start_master(home_root: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts a master in the background. Of several that are started at once, one goes on."""
    home_root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log_path(home_root).open("ab") as log:
        # `-P`: the user's working directory must not shadow our modules.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "core_sdk.master", *options],
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


def ask(connection: socket.socket, do: str, **arguments: Any) -> dict[str, Any]:
    """Closes the connection. Raises `MasterError`."""
    request = {"protocol": PROTOCOL, "version": __version__, "do": do, **arguments}
    try:
        with connection, connection.makefile("rb") as answers:
            connection.settimeout(_ANSWER_S)
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = answers.readline()
    except OSError as error:
        raise MasterError(f"it does not answer: {error}") from error
    if not line.endswith(b"\n"):
        raise MasterError("it ended before it answered; ask again")
    answer: dict[str, Any] = json.loads(line)
    if not answer.pop("ok"):
        raise MasterError(answer["error"])
    return answer


def _connect(home_root: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        with socket_address(home_root) as address:
            connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise MasterError(f"its socket {home_root / 'master.sock'} cannot be used: {error.strerror}") from error
    return connection
