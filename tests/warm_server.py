"""Forks a program's processes on demand, so that they need not spend a second on imports.

    python warm_server.py SOCKET MODULE:FUNCTION [MODULE…]

Imports the function and the modules, says `listening`, and runs the function in a new process for each request on the
socket. Each is a process like any other: it has its own arguments, environment, directory, output, signals and end.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import NoReturn


def serve(path: str, main: Callable[[], object]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(32)
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(connection, main)
            connection.close()


def _attend(connection: socket.socket, main: Callable[[], object]) -> NoReturn:
    """Starts one process, and says its pid and then its status, as lines."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rw") as lines:
        request = json.loads(lines.readline())
        pid = os.fork()
        if pid == 0:
            _prepare(**request)
            main()
            sys.exit()
        lines.write(f"{pid}\n")
        lines.flush()
        _, status = os.waitpid(pid, 0)
        lines.write(f"{os.waitstatus_to_exitcode(status)}\n")
    os._exit(0)


def _prepare(
    arguments: list[str],
    directory: str,
    variables: dict[str, str],
    stdin: str,
    stdout: str,
    stderr: str,
    ignores_children: bool,
) -> None:
    if ignores_children:
        # A parent's choice that launchers must not fall for.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.setsid()
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # an imported library may have asked for it already
    os.chdir(directory)
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    for descriptor, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
    sys.argv = arguments


if __name__ == "__main__":
    path, entry, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    name, _, function = entry.partition(":")
    serve(path, getattr(importlib.import_module(name), function))
