"""Starts agents, and speaks with them: JSON lines over a Unix socket, which also carries file descriptors."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core_sdk.environment import agent_variables, child_variables
from core_sdk.environment.names import HOME_VARIABLE, RUN_INFO_VARIABLE
from core_sdk.errors import CommandNotExecutableError

if TYPE_CHECKING:
    from core_sdk.tracking.attempts.starting import Start


@dataclass(frozen=True)
class Ended:
    """What an agent says of the end of its command."""

    code: int | None
    """The exit status, -N for death by signal N; None if the agent was killed, and its command with it."""
    problems: tuple[str, ...] = ()
    """What could not be recorded, in words."""


@dataclass(frozen=True)
class Screen:
    """The terminal on which the person watches; the command gets one of its own, of the same size."""

    output: int
    """The pipe that takes a copy of what the command writes to its terminal."""
    num_rows: int
    num_columns: int


class Agent:
    """An agent that waits, from construction on, for the attempt that it is to start.

    It imports what it needs meanwhile. If it is closed, or this process dies, before `start`, it ends.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            # `-P`: the user's working directory must not shadow our modules.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "core_sdk.agent"],
                env=agent_variables(),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            theirs.close()
        self._answers = self._socket.makefile("rb")

    def start(self, start: Start, *, stdin: int | None, screen: Screen | None = None) -> None:
        """Starts the command; with a `screen` on a terminal of its own, which is its stdin too where `stdin` is None.

        The lock of `start` is the agent's from now on. Raises `CommandNotExecutableError`.
        """
        folder, command = start.folder, start.command
        variables = {
            **command.environment,
            **start.variables,
            HOME_VARIABLE: str(folder.home_root.absolute()),
            RUN_INFO_VARIABLE: str(folder.run_info_path(start.number).absolute()),
            # Into a pipe Python would write in blocks, of which a kill loses the last one.
            "PYTHONUNBUFFERED": "1",
        }
        order = {
            "home": str(folder.home_root.absolute()),
            "trial_id": folder.trial_id,
            "log": str(folder.log_path(start.number).absolute()),
            "argv": command.argv,
            "cwd": command.cwd,
            "variables": child_variables(variables, start.default_variables),
            "mask": [int(number) for number in self.mask],
            "has_stdin": stdin is not None,
            "size": None if screen is None else [screen.num_rows, screen.num_columns],
        }
        descriptors = [start.lock.fileno()]
        descriptors += [] if stdin is None else [stdin]
        descriptors += [] if screen is None else [screen.output]
        socket.send_fds(self._socket, [b"+"], descriptors)
        self._tell(order)
        answer = self._answer()
        if "refused" in answer:
            raise CommandNotExecutableError(command.argv[0], answer["refused"])
        start.lock.leave()

    def signal(self, number: int) -> None:
        """To the command; SIGTERM and its like to its own process, what a terminal sends to its process group."""
        self._tell({"signal": int(number)})

    def type(self, text: bytes) -> None:
        """Input for the command's terminal."""
        self._tell({"input": text.decode("latin-1")})

    def resize(self, num_rows: int, num_columns: int) -> None:
        self._tell({"size": [num_rows, num_columns]})

    def wait(self) -> Ended:
        """Blocks until the command has ended, its last output is kept and its end is recorded."""
        answer = self._answer()
        return Ended(answer.get("code"), tuple(answer.get("problems", ())))

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # an agent that has ended, or was killed, is noticed by `wait`
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        """Empty when there is no agent any more."""
        try:
            line = self._answers.readline()
        except OSError:
            line = b""
        answer: dict[str, Any] = json.loads(line) if line.endswith(b"\n") else {}
        return answer
