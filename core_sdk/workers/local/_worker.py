"""A worker's process: `python -P _worker.py DESCRIPTOR`, where the descriptor is a socket to the program that calls.

It is started by the path of this file, so that a directory of the user's cannot shadow a package. The first message is
the program's `sys.path`, so that the worker finds all that the program can import.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any


def main() -> None:
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    serve(Connection(descriptor))


def begin_forked(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Makes a worker of a process that a spawner has forked."""
    from core_sdk.environment import add_variables

    connection, stdout, stderr = descriptors
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["mask"])
    os.chdir(request["directory"])
    add_variables(request["variables"])
    if (random := sys.modules.get("numpy.random")) is not None:
        # Python reseeds its own generator after a fork, but all workers would draw the same numbers from NumPy's.
        random.seed()
    serve(Connection(connection))


def serve(connection: Connection[bytes, bytes]) -> None:
    """Answers calls until the program has closed the connection, or is dead."""
    # A process inherits the mask of the thread that has started it, and threads of Ray's block signals.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    with contextlib.suppress(EOFError, ConnectionError):
        order = json.loads(connection.recv_bytes())
        sys.path[:] = order["path"]
        sys.argv = order["arguments"]
        # Only now: Core SDK itself may stand on that path.
        from core_sdk.environment import RankPlace
        from core_sdk.workers._program import WorkerProgram

        program = WorkerProgram(RankPlace.from_torchrun())
        connection.send_bytes(b"ready")
        while True:
            answer = program.answer(connection.recv_bytes())
            connection.send_bytes(b"failed" if answer.is_failure else b"")
            connection.send_bytes(answer.content)
    # What is registered for the end of the process may hang.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


if __name__ == "__main__":
    main()
