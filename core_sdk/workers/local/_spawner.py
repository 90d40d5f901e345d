"""The spawner's process: `python -P _spawner.py DESCRIPTOR`, where the descriptor is a socket to the program.

It has one thread, and never runs code of the user's. For each request it forks a worker, with four descriptors: the
worker's connection, its stdout and stderr, and its `life`. Over `life`, a keeper, which is the worker's parent, sends
the worker's pid and, when it has ended, its exit status. The worker stays a zombie until the program shuts its `life`
down. The spawner ends with the program. Like a worker, it is started by the path of its file.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
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
    # The program's path, so that Core SDK is found.
    sys.path[:] = json.loads(requests.recv(MOST_BYTES))
    from core_sdk.workers.local import _worker

    connection = _serve(requests)
    if connection is not None:
        _worker.serve(connection)


def _serve(requests: socket.socket) -> Connection[bytes, bytes] | None:
    """Serves requests. Returns the connection in each worker, and None in the spawner when the program has ended."""
    # The kernel then reaps the keepers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests.settimeout(_LOOK_S)
    program = os.getppid()
    while os.getppid() == program:
        with contextlib.suppress(TimeoutError):
            message, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 4)
            if not message:
                return None
            request = json.loads(message)
            for module in request["modules"]:
                importlib.import_module(module)
            # Keeps a garbage collection in a worker from copying the memory of the imported modules.
            gc.freeze()
            # If no process can be forked, the program sees that the connections are closed.
            with contextlib.suppress(OSError):
                if os.fork() == 0:
                    requests.close()
                    return _keep_worker(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
    return None


def _keep_worker(request: dict[str, Any], descriptors: Sequence[int]) -> Connection[bytes, bytes]:
    """Runs a keeper: forks the worker and reports its pid and exit status. Returns in the worker only."""
    from core_sdk.processes import await_end

    connection, stdout, stderr, last = descriptors
    life = socket.socket(fileno=last)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        is_leading, told = os.pipe()
        if (pid := os.fork()) == 0:
            os.setsid()
            os.close(is_leading)
            os.close(told)
            life.close()
            _become_worker(request, stdout, stderr)
            return Connection(connection)
        os.close(told)
        os.read(is_leading, 1)
        life.send(str(pid).encode())
        for descriptor in (connection, stdout, stderr):
            os.close(descriptor)
        life.send(str(await_end(pid)).encode())
        life.recv(1)
        os.waitpid(pid, 0)
    except OSError:  # the program is dead, or no process can be forked
        pass
    os._exit(0)


def _become_worker(request: dict[str, Any], stdout: int, stderr: int) -> None:
    from core_sdk.environment import add_variables

    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(request["directory"])
    add_variables(request["variables"])
    if (random := sys.modules.get("numpy.random")) is not None:
        # Python reseeds its own generator after a fork, but all workers would draw the same numbers from NumPy's.
        random.seed()


def _exit() -> None:
    """Ends the process without the interpreter's cleanup, which would copy the memory of all imported modules."""
    from core_sdk.workers._program import exit_at_once

    exit_at_once()


if __name__ == "__main__":
    main()
