"""`core-sdk`, always as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from processes import TIMEOUT_S, Script
from warm import WarmProgram

COMMAND = [sys.executable, "-m", "core_sdk._interfaces.cli"]
_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG")
"""Variables that a process reads before its first import."""


@dataclass(frozen=True)
class Finished:
    """A command that has ended; bytes of its output that are not UTF-8 are lone surrogates."""

    status: int
    output: str
    errors: str


Cli = Callable[..., Finished]
StartCli = Callable[..., Script]
WriteScript = Callable[[str], Path]


class WarmCli:
    """Runs `core-sdk` commands in a process that has already imported what they use."""

    def __init__(self, program: WarmProgram, output_directory: Path) -> None:
        self._program = program
        self._output_directory = output_directory

    def run(self, directory: Path, *arguments: str, stdin: str = "", **variables: str) -> Finished:
        """Runs a command with these variables added to this process's."""
        if any(name.startswith(_OF_THE_INTERPRETER) for name in variables):
            return run_cli(directory, *arguments, stdin=stdin, **variables)
        return self.run_with(os.environ | variables, directory, *arguments, stdin=stdin)

    def run_with(self, variables: Mapping[str, str], directory: Path, *arguments: str, stdin: str = "") -> Finished:
        """Runs a command with these environment variables only."""
        with tempfile.TemporaryDirectory(dir=self._output_directory) as outputs:
            (Path(outputs) / "stdin").write_text(stdin)
            process = self._program.start(
                ["core-sdk", *arguments],
                directory=directory,
                output_directory=Path(outputs),
                variables=variables,
                stdin=str(Path(outputs) / "stdin"),
            )
            status = process.wait()
            said = [each.read_text("utf-8", "surrogateescape") for each in (process.stdout, process.stderr)]
        return Finished(status, *said)


def run_cli(directory: Path, *arguments: str, stdin: str = "", **variables: str) -> Finished:
    """Runs a command in a process that imports everything itself."""
    ended = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        cwd=directory,
        env=os.environ | variables,
        encoding="utf-8",
        errors="surrogateescape",
    )
    return Finished(ended.returncode, ended.stdout, ended.stderr)


def start_cli_in(directory: Path, *arguments: str) -> Script:
    """Starts a command in a process group of its own."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        start_new_session=True,
    )
    return Script(process)
