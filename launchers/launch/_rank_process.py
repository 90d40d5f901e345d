"""The start of a rank: a process in a session of its own, whose output goes into pipes or files."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core_sdk._ground.environment import rank_variables
from core_sdk._machine.processes.output import RankPipes
from launch._command_line import NOT_EXECUTABLE, NOT_FOUND, CommandLineError

# A Python that crashes, or is told to abort since it hangs, writes where it stood.
_DEFAULTS = {"PYTHONFAULTHANDLER": "1"}


def start_rank(
    command: Sequence[str],
    outputs: RankPipes,
    variables: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
    cores: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a rank. Raises `CommandLineError`, and `OSError` if its output cannot be opened.

    Its environment is `defaults`, updated by this process's, updated by `variables`. It may run on `cores`, by default
    on those of this thread. A signal to this process's group, such as Ctrl-C or one from mpirun, does not reach it.
    """
    # Closed here at once, so that the pipes end with the rank.
    with Path(outputs.stdout_path).open("ab") as stdout, Path(outputs.stderr_path).open("ab") as stderr:
        try:
            with _on_cores(cores):
                return subprocess.Popen(
                    command,
                    env=rank_variables(variables, {**_DEFAULTS, **(defaults or {})}),
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            program = error.filename or command[0]
            raise CommandLineError(f"{program!r} cannot be started: {error.strerror}", code) from error


@contextlib.contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Keeps this thread, and all that it starts inside the block, on these cores. Does nothing without cores."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
