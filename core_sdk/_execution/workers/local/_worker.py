"""A worker's process: `python -P _worker.py DESCRIPTOR DESCRIPTOR`, with two sockets to the program that calls.

Calls of the second one are answered by a thread, also while the main thread answers one of the first.

The process is started by the path of this file, so that a directory of the user's cannot shadow a package. The first
message is the program's `sys.path`, so that the worker finds all that the program can import.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any


def main() -> None:
    connection, of_thread = map(int, sys.argv[1:])
    os.set_inheritable(connection, False)
    os.set_inheritable(of_thread, False)
    serve(Connection(connection), Connection(of_thread))


def begin_forked(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Makes a worker of a process that a spawner has forked."""
    from core_sdk._ground.environment import add_variables

    connection, of_thread, stdout, stderr = descriptors
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
    serve(Connection(connection), Connection(of_thread))


def serve(connection: Connection[bytes, bytes], of_thread: Connection[bytes, bytes]) -> None:
    """Answers calls until the program has closed the connection, or is dead."""
    # A process inherits the mask of the thread that has started it, and threads of Ray's block signals.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    with contextlib.suppress(EOFError, ConnectionError):
        order = json.loads(connection.recv_bytes())
        sys.path[:] = order["path"]
        sys.argv = order["arguments"]
        # Only now: Core SDK itself may stand on that path.
        from core_sdk._execution.workers._program import WorkerProgram
        from core_sdk._ground.environment import RankPlace

        program = WorkerProgram(RankPlace.from_torchrun())
        threading.Thread(target=_answer, args=(of_thread, partial(program.answer, in_thread=True)), daemon=True).start()
        connection.send_bytes(b"ready")
        _answer(connection, program.answer)
    # What is registered for the end of the process may hang.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _answer(connection: Connection[bytes, bytes], answer_to: Callable[[bytes], Any]) -> None:
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            answer = answer_to(connection.recv_bytes())
            connection.send_bytes(b"failed" if answer.is_failure else b"")
            connection.send_bytes(answer.content)


if __name__ == "__main__":
    main()
