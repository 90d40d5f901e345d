"""A spawner's process: `python -P _spawner_process.py DESCRIPTOR`. `_spawner` says what it is for.

The descriptor is a socket to the program. It has one thread, and never runs code of the user's. Each request comes with
descriptors. It ends with the program. It is started by the path of this file, so that a directory of the user's cannot
shadow a package; the first message has the program's `sys.path`, so that Core SDK is found. Without one, modules are
found as by a script, and `-P` is left out, which a script would pass on to its own processes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

_CHUNK_BYTES = 1 << 16
_MOST_DESCRIPTORS = 4
# A process that the program has forked may hold the socket open when the program is dead.
_LOOK_S = 5.0


def main() -> None:
    # Registered first, and so called last. The interpreter's cleanup would copy the memory of all imported modules.
    atexit.register(exit_at_once)
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    order, _ = _receive(requests)
    is_like_script = order["path"] is None
    if is_like_script:
        del sys.path[: not sys.flags.safe_path]  # the directory of this file
    else:
        sys.path[:] = order["path"]
    for name in order["modules"]:
        with contextlib.suppress(*([Exception] if is_like_script else [])):
            importlib.import_module(name)
    module, _, function = order["function"].partition(":")
    begin = getattr(importlib.import_module(module), function)
    # Keeps a garbage collection in a forked process from copying the memory of the imported modules.
    gc.freeze()
    forked = _serve(requests, is_orphaning=order["is_orphaning"])
    if forked is not None:
        begin(*forked)


def _serve(requests: socket.socket, *, is_orphaning: bool) -> tuple[Any, list[int]] | None:
    """Serves requests. Returns its own in each forked process, and None in the spawner when the program has ended."""
    # The kernel then reaps what is forked.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests.settimeout(_LOOK_S)
    program = os.getppid()
    with contextlib.suppress(EOFError, ConnectionError):
        requests.sendall(b"ready\n")
        while os.getppid() == program:
            with contextlib.suppress(TimeoutError):
                request, descriptors = _receive(requests)
                pid = _fork_session(is_orphan=is_orphaning)
                if pid == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    requests.close()
                    return request, descriptors
                for descriptor in descriptors:
                    os.close(descriptor)
                requests.sendall(f"{pid}\nready\n".encode())
    return None


def _receive(requests: socket.socket) -> tuple[Any, list[int]]:
    """Returns the next message, and its descriptors. Raises `EOFError`."""
    message, descriptors, _, _ = socket.recv_fds(requests, _CHUNK_BYTES, _MOST_DESCRIPTORS)
    while not message.endswith(b"\n"):
        chunk = requests.recv(_CHUNK_BYTES) if message else b""
        if not chunk:
            raise EOFError
        message += chunk
    return json.loads(message), descriptors


def _fork_session(*, is_orphan: bool) -> int:
    """Forks a process that leads a session; the parent of an orphan has ended. Returns its pid, or 0 in the process.

    Returns -1 if the orphan cannot be forked.
    """
    told, telling = os.pipe()
    parent = os.fork()
    if parent == 0 and is_orphan and os.fork() != 0:
        os._exit(0)
    if parent == 0:
        os.setsid()
        os.write(telling, str(os.getpid()).encode())
        os.close(told)
        os.close(telling)
        return 0
    os.close(telling)
    if is_orphan:
        with contextlib.suppress(ChildProcessError):  # it has been reaped by the kernel
            os.waitpid(parent, 0)
    pid = int(os.read(told, _CHUNK_BYTES) or -1)
    os.close(told)
    return pid


def exit_at_once(status: int = 0) -> NoReturn:
    """Flushes the output, and ends this process without running what is registered for its end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a script may have replaced the stream
            stream.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(status)


if __name__ == "__main__":
    main()
