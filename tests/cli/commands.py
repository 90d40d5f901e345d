"""`core-sdk`, always as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from processes import TIMEOUT_S, Script

COMMAND = [sys.executable, "-m", "core_sdk.cli"]


@dataclass(frozen=True)
class Finished:
    """A command that has ended; bytes of its output that are not UTF-8 are lone surrogates."""

    status: int
    output: str
    errors: str


Cli = Callable[..., Finished]
StartCli = Callable[..., Script]
WriteScript = Callable[[str], Path]


def run_cli(directory: Path, *arguments: str, stdin: str = "", **variables: str) -> Finished:
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
    """In a process group of its own."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        start_new_session=True,
    )
    return Script(process)
