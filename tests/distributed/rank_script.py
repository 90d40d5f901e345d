"""What the script of a rank can use, in a process that `ranks.py` has started."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

from core_sdk.core import DistributedContext

_request = json.loads(sys.argv[1])
_folder = Path(_request["folder"])
_terms = json.loads(_request["terms"])

rank: int = int(_request["rank"])
arguments: dict[str, Any] = json.loads(_request["arguments"])
"""What the test has given to all ranks."""


def join(**changes: Any) -> DistributedContext:
    """Returns a DistributedContext with the test's options."""
    return DistributedContext(**(_terms | changes))


def tell(value: object) -> None:
    """Tells the test a value that JSON can hold."""
    with (_folder / f"outcome.{rank}").open("a") as file:
        file.write(json.dumps({"value": value, "at": time.monotonic()}) + "\n")


def mark(name: str) -> None:
    """Tells the test and the other ranks how far this rank has come."""
    (_folder / name).touch()


def await_mark(name: str) -> None:
    while not (_folder / name).exists():
        time.sleep(0.002)


def mark_when_waiting() -> None:
    """Marks `rank N waits` when this rank has introduced itself and waits for the group."""

    def watch() -> None:
        main = threading.main_thread().ident
        while main is not None and sys._current_frames()[main].f_code.co_name not in ("_await_welcome", "select"):
            time.sleep(0.001)
        mark(f"rank {rank} waits")

    threading.Thread(target=watch, daemon=True).start()


def misbehave(fault: str) -> None:
    """Misbehaves in the named way."""
    if fault == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "exits":
        os._exit(7)
    elif fault == "is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "sends garbage":
        for descriptor in own_sockets():
            os.write(descriptor, 64 * bytes([255]))
    elif fault == "hangs up":
        for descriptor in own_sockets():
            socket.socket(fileno=os.dup(descriptor)).shutdown(socket.SHUT_WR)
        time.sleep(0.5)


def own_sockets() -> list[int]:
    """Returns the descriptors of this process's connections."""
    descriptors = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return [descriptor for descriptor in sorted(descriptors) if _is_socket(descriptor)]


def tcp_ports() -> list[int]:
    """Returns the local ports of this process's TCP connections, oldest first."""
    ports = []
    for descriptor in own_sockets():
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                ports.append(int(connection.getsockname()[1]))
    return ports


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
