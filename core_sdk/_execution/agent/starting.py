"""Starts agents, and speaks with them over a Unix socket, which also carries file descriptors."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from core_sdk._execution.agent._messages import (
    AgentAnswer,
    AgentMessage,
    AgentOrder,
    CommandEnded,
    CommandNotStarted,
    ResizeTerminal,
    SendSignal,
    TypeInput,
)
from core_sdk._ground.environment import agent_variables, child_variables, stall_bounds
from core_sdk._ground.environment.names import HOME_VARIABLE, RUN_INFO_VARIABLE
from core_sdk._ground.signs import StallBounds
from core_sdk._ground.typed_lines import from_line, to_line
from core_sdk._home.next_attempt import mark_of_attempt
from core_sdk._machine.processes import Forked, Spawner, start_helper
from core_sdk.errors import CommandError

if TYPE_CHECKING:
    from core_sdk._home.attempts.starting import AttemptStart


# As often as experiments do.
_MAX_RESTARTS = 5


@dataclass(frozen=True)
class Screen:
    """The terminal on which the user watches. The command gets another terminal, of the same size."""

    output: int
    """The pipe that takes a copy of what the command writes to its terminal."""
    num_rows: int
    num_columns: int


class Forking(Protocol):
    """Forks agents, as an `AgentSpawner` does."""

    def fork(self, request: object, descriptors: Sequence[int]) -> Forked:
        """Forks a process. Raises `OSError`."""


class Agent:
    """An agent that waits, from construction on, for the attempt that it is to start.

    It imports what it needs meanwhile, or is forked from a `spawner` that has done so. If it is closed, or this process
    dies, before `start`, it ends.
    """

    variables: Mapping[str, str] = MappingProxyType({})
    """The environment of the command, after `start`."""

    def __init__(self, spawner: Forking | None = None) -> None:
        self._sending = threading.Lock()
        self._is_ordered = False
        self._early: list[AgentMessage] = []
        """The messages that the agent gets as soon as it has its order."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            if spawner is None:
                # `-P`: the user's working directory must not shadow our modules.
                self.process = start_helper(
                    ["-P", "-m", "core_sdk._execution.agent"],
                    env=agent_variables(),
                    stdin=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                )
            else:
                with contextlib.suppress(OSError):  # `start` notices that there is no agent
                    spawner.fork({}, [theirs.fileno()])
        self._answers = self._socket.makefile("rb")

    def start(
        self,
        start: AttemptStart,
        *,
        stdin: int | None = None,
        screen: Screen | None = None,
        ends_with: int | None = None,
    ) -> None:
        """Starts the command. With a `screen` it gets its own terminal, which is also its stdin if `stdin` is None.

        Without a `screen` and a `stdin` it has nothing to read.

        When the process `ends_with` ends, the command is killed with all that it has started, and nothing is recorded.

        The lock and the ticket of `start` are the agent's from now on. Raises `CommandError`.
        """
        folder, command = start.folder, start.command
        if command is None:
            raise ValueError(f"trial {folder.trial_id} has no command that an agent could start")
        run_info = folder.run_info_path(start.number).absolute()
        mark = mark_of_attempt(folder, start.number)
        variables = {
            **command.environment,
            **start.variables,
            **mark.variables,
            HOME_VARIABLE: str(folder.home_root.absolute()),
            RUN_INFO_VARIABLE: str(run_info),
            # Into a pipe Python would write in blocks, of which a kill loses the last one.
            "PYTHONUNBUFFERED": "1",
        }
        order = AgentOrder(
            home=str(folder.home_root.absolute()),
            trial_id=folder.trial_id,
            node=folder.node,
            attempt=start.number,
            log=str(folder.log_path(start.number).absolute()),
            mark=str(mark),
            argv=command.argv,
            cwd=command.cwd,
            variables=child_variables(variables, start.default_variables),
            mask=[int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            has_stdin=stdin is not None,
            screen=None if screen is None else (screen.num_rows, screen.num_columns),
            ends_with=ends_with,
            ticket=None if start.ticket is None else str(start.ticket.path),
            time_limit_s=start.time_limit_s,
            stall_bounds=_stall_bounds(),
            restarts_stalled=_on_stall(start) == "restart",
            num_restarts=0 if start.folder.read_record().request_id else _MAX_RESTARTS,
            num_nodes=len(start.info.container_addrs),
        )
        self.variables = order.variables
        descriptors = [start.lock.fileno()]
        descriptors += [] if start.ticket is None else [start.ticket.fileno()]
        descriptors += [] if stdin is None else [stdin]
        descriptors += [] if screen is None else [screen.output]
        answer = self._order(order, descriptors)
        if answer is None and not folder.log_path(start.number).exists():
            answer = CommandNotStarted("no agent could be started for it")
        if isinstance(answer, CommandNotStarted):
            raise CommandError.not_executable(command.argv[0], answer.reason)
        start.lock.leave()
        if start.ticket is not None:
            start.ticket.leave()

    def _order(self, order: AgentOrder, descriptors: list[int]) -> AgentAnswer | None:
        with self._sending, contextlib.suppress(OSError):  # an agent that was killed gives no answer
            socket.send_fds(self._socket, [b"+"], descriptors)
            for message in (order, *self._early):
                self._socket.sendall(to_line(message))
            self._is_ordered = True
        return self._answer()

    def signal(self, number: int) -> None:
        """Sends a signal to the command: to its process group if it is one that terminals send, else to its process.

        Before `start` the signal is kept for the command. SIGKILL ends all that the command has started, also in other
        sessions, which takes a second.
        """
        self._tell(SendSignal(int(number)))

    def type(self, text: bytes) -> None:
        """Sends input to the command's terminal."""
        self._tell(TypeInput(text))

    def resize(self, num_rows: int, num_columns: int) -> None:
        self._tell(ResizeTerminal(num_rows, num_columns))

    def wait(self) -> CommandEnded:
        """Blocks until the command has ended, its last output is kept and its end is recorded."""
        answer = self._answer()
        return answer if isinstance(answer, CommandEnded) else CommandEnded(None)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _tell(self, message: AgentMessage) -> None:
        with self._sending, contextlib.suppress(OSError):  # `wait` notices an agent that has ended or was killed
            if self._is_ordered:
                self._socket.sendall(to_line(message))
            else:
                self._early.append(message)

    def _answer(self) -> AgentAnswer | None:
        """Returns the agent's next answer; None if the agent has ended."""
        try:
            line = self._answers.readline()
        except OSError:
            line = b""
        return from_line(line, AgentAnswer) if line.endswith(b"\n") else None


def _stall_bounds() -> StallBounds | None:
    try:
        return stall_bounds()
    except ValueError as error:
        raise CommandError(str(error), exit_status=2) from None


def _on_stall(start: AttemptStart) -> str:
    """Returns what is done when the ranks of the attempt stand still: "tell", which is the default, or "restart"."""
    return start.folder.read_record().on_stall or start.info.trial.config.get("on_stall") or "tell"


class AgentSpawner(Spawner):
    """The spawner of a program that starts many agents. They live on without it, and without this process."""

    def __init__(self) -> None:
        function = "core_sdk._execution.agent.__main__:begin_forked"
        super().__init__(function, agent_variables(), is_adopting=False)
