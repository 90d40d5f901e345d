"""The spawner's process: `python -P _spawner.py DESCRIPTOR`, where the descriptor is a socket to the program.

It has one thread, and never runs code of the user's. For each request it forks a worker, with three descriptors: the
worker's connection, its stdout and stderr. The worker's parent ends at once, so that the program, which adopts orphans
meanwhile, becomes its parent. The spawner ends with the program. Like a worker, it is started by the path of its file.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

MOST_BYTES = 1 << 20
"""The maximum size of a message."""

# A process that the program has forked may hold the socket open when the program is dead.
_LOOK_S = 5.0


def main() -> None:
    # Registered first, and so called last, after what the user's code has registered in a worker.
    atexit.register(_exit)
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    beginning = json.loads(requests.recv(MOST_BYTES))
    # The program's path, so that Core SDK is found.
    sys.path[:] = beginning["path"]
    from core_sdk.workers.local import _worker

    for module in beginning["modules"]:
        importlib.import_module(module)
    # Keeps a garbage collection in a worker from copying the memory of the imported modules.
    gc.freeze()
    connection = _serve(requests)
    if connection is not None:
        _worker.serve(connection)


def _serve(requests: socket.socket) -> Connection[bytes, bytes] | None:
    """Serves requests. Returns the connection in each worker, and None in the spawner when the program has ended."""
    requests.settimeout(_LOOK_S)
    program = os.getppid()
    with contextlib.suppress(ConnectionError):
        requests.send(b"ready")
        while os.getppid() == program:
            with contextlib.suppress(TimeoutError):
                message, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
                if not message:
                    return None
                pid = _fork_orphan()
                if pid == 0:
                    requests.close()
                    return _become_worker(json.loads(message), descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                requests.send(str(pid).encode())
                requests.send(b"ready")
    return None


def _fork_orphan() -> int:
    """Forks a process that leads a session, and whose parent has ended. Returns as `_fork` does."""
    told, telling = os.pipe()
    if (parent := _fork()) == 0:
        if _fork() != 0:
            os._exit(0)
        os.setsid()
        os.write(telling, str(os.getpid()).encode())
        os.close(told)
        os.close(telling)
        return 0
    os.close(telling)
    if parent > 0:
        os.waitpid(parent, 0)
    pid = int(os.read(told, MOST_BYTES) or -1)
    os.close(told)
    return pid


def _fork() -> int:
    """Returns the pid of the new process, 0 in the process itself, and -1 if none can be forked."""
    try:
        return os.fork()
    except OSError:
        return -1


def _become_worker(request: dict[str, Any], descriptors: Sequence[int]) -> Connection[bytes, bytes]:
    from core_sdk.environment import add_variables

    connection, stdout, stderr = descriptors
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(request["directory"])
    add_variables(request["variables"])
    if (random := sys.modules.get("numpy.random")) is not None:
        # Python reseeds its own generator after a fork, but all workers would draw the same numbers from NumPy's.
        random.seed()
    return Connection(connection)


def _exit() -> None:
    """Ends the process without the interpreter's cleanup, which would copy the memory of all imported modules."""
    from core_sdk.workers._program import exit_at_once

    exit_at_once()


if __name__ == "__main__":
    main()
