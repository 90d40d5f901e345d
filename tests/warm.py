"""Programs whose processes start in milliseconds, forked by a server that has imported what they need."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import warm_server
from processes import TIMEOUT_S


@dataclass(frozen=True)
class WarmProcess:
    pid: int
    stdout: Path
    stderr: Path
    status: TextIO
    """Has one line, at the end of the process: its exit status, or -N if signal N killed it."""

    def wait(self) -> int:
        with self.status:
            return int(self.status.readline())


@dataclass(frozen=True)
class WarmProgram:
    """A function that is run in a new process for each start."""

    socket_path: Path

    def start(
        self,
        arguments: Sequence[str],
        *,
        directory: Path,
        output_directory: Path,
        variables: Mapping[str, str],
        stdin: str = os.devnull,
        stdout: Path | None = None,
        stderr: Path | None = None,
        ignores_children: bool = False,
    ) -> WarmProcess:
        """`arguments` begin with the program's name. Output goes to the given files, or to new ones."""
        stdout = stdout or _new_file(output_directory, ".out")
        stderr = stderr or _new_file(output_directory, ".err")
        request = {
            "arguments": list(arguments),
            "directory": str(directory),
            "variables": dict(variables),
            "stdin": stdin,
            "stdout": str(stdout),
            "stderr": str(stderr),
            "ignores_children": ignores_children,
        }
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(self.socket_path))
        with connection:
            lines = connection.makefile("rw")
            lines.write(json.dumps(request) + "\n")
            lines.flush()
            pid = int(lines.readline())
            # The process itself may take as long as the test may.
            connection.settimeout(None)
        return WarmProcess(pid, stdout, stderr, lines)


def _new_file(directory: Path, suffix: str) -> Path:
    descriptor, path = tempfile.mkstemp(dir=directory, prefix="warm-", suffix=suffix)
    os.close(descriptor)
    return Path(path)


@contextlib.contextmanager
def warm_program(entry: str, *modules: str) -> Iterator[WarmProgram]:
    """Yields the function of an entry `module:function`, in a server that has also imported the modules."""
    # Short: the path of a socket has about a hundred bytes.
    with tempfile.TemporaryDirectory(prefix="warm-") as directory:
        path = Path(directory) / "socket"
        command = [sys.executable, warm_server.__file__, str(path), entry, *modules]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                if server.stdout is None or server.stdout.readline() != b"listening\n":
                    raise RuntimeError(f"the server of {entry} has not come up")
                yield WarmProgram(path)
            finally:
                server.kill()
