"""Programs that use workers, each a process of its own, on each engine."""

from __future__ import annotations

import os
import subprocess
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from processes import TIMEOUT_S, Script

_BEGINNING = """
import os, signal, sys, time
from core_sdk.errors import *
from core_sdk._execution.workers import WorkerGroup, this_worker

def rank():
    return this_worker().rank

def mark(name):
    open(os.path.join(DIRECTORY, name), "w").close()

def is_marked(name):
    return os.path.exists(os.path.join(DIRECTORY, name))

def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

"""


@dataclass(frozen=True)
class Programs:
    """Programs whose `engine()` makes the engine that is tested."""

    engine: str
    python: Path
    make_engine: str
    directory: Path
    variables: dict[str, str]
    started: list[Script] = field(default_factory=list)

    @property
    def most_workers(self) -> int:
        return 64 if self.engine == "local" else 8

    def write(self, source: str) -> Path:
        """Writes the program's file and returns its path."""
        text = (
            _BEGINNING
            + f"DIRECTORY = {str(self.directory)!r}\n"
            + textwrap.dedent(self.make_engine)
            + textwrap.dedent(source)
        )
        path = self.directory / "program.py"
        path.write_text(text)
        return path

    def start(self, source: str, *, is_piped: bool = False, **variables: str) -> Script:
        """`is_piped`: the program comes on stdin, as from a person, and is no file."""
        path = self.write(source)
        with path.open() as file:
            process = subprocess.Popen(
                [str(self.python), "-u", "-" if is_piped else str(path)],
                stdin=file if is_piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | self.variables | variables,
                cwd=self.directory,
            )
        self.started.append(Script(process))
        return self.started[-1]

    def run(self, source: str, *, is_piped: bool = False, timeout_s: float = TIMEOUT_S, **variables: str) -> str:
        """Runs the program to its end and returns its output."""
        code, output, errors = self.start(source, is_piped=is_piped, **variables).wait(timeout_s)
        assert code == 0, f"exit status {code}\n{output}\n{errors}"
        return output
