"""Launchers without the second that importing torch takes: a process that has imported it forks each of them.

Started with the path of the socket on which launches are asked for. Each launcher is a process as any other: it has its
own arguments, environment, directory, output, signals and end.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import NoReturn

from launch._torchrun import _agent  # noqa: F401  # what is to be warm
from launch.torch_distributed import main


def serve(path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(32)
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(connection)
            connection.close()


def _attend(connection: socket.socket) -> NoReturn:
    """Starts one launcher, and says its pid and then its status, as lines."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rw") as lines:
        request = json.loads(lines.readline())
        pid = os.fork()
        if pid == 0:
            # A parent's choice that launchers must not fall for.
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            _become_launcher(**request)
        lines.write(f"{pid}\n")
        lines.flush()
        _, status = os.waitpid(pid, 0)
        lines.write(f"{os.waitstatus_to_exitcode(status)}\n")
    os._exit(0)


def _become_launcher(
    arguments: list[str], directory: str, variables: dict[str, str], stdout: str, stderr: str
) -> NoReturn:
    os.setsid()
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    for descriptor, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
    sys.argv = ["torch_distributed", *arguments]
    main()
    raise AssertionError("the launcher returned")


if __name__ == "__main__":
    serve(sys.argv[1])
