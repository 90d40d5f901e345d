"""The messages between an agent and the program that has started it: lines of JSON over a Unix socket."""

from __future__ import annotations

import msgspec

from core_sdk._ground.signs import StallBounds


class AgentOrder(msgspec.Struct, frozen=True, tag=True):
    """The attempt that the agent is to start, and its first message. Descriptors come with it, in the order named."""

    home: str
    trial_id: int
    node: int
    """The number of this node in the attempt."""
    attempt: int
    log: str
    mark: str
    argv: list[str]
    cwd: str
    variables: dict[str, str]
    mask: list[int]
    """The signals that are blocked in the command."""
    has_stdin: bool
    """Whether the command's stdin follows the descriptors of the attempt's lock and of its ticket."""
    screen: tuple[int, int] | None
    """The rows and columns of the user's terminal, for whose output the last descriptor is; None without one."""
    ends_with: int | None
    """The process whose end kills the command."""
    ticket: str | None = None
    """The path of the ticket for the slots of the attempt."""
    time_limit_s: float | None = None
    """The time after which the command is asked to stop; None for no limit."""
    stall_bounds: StallBounds | None = None
    """The bounds beyond which its ranks count as stalled; None if nobody watches."""
    restarts_stalled: bool = False
    """Whether it is killed then."""
    num_restarts: int = 0
    """The number of times that its agent starts it again after that."""
    num_nodes: int = 1
    """The number of nodes on which the attempt runs, each with an agent."""


class SendSignal(msgspec.Struct, frozen=True, tag=True):
    number: int


class ResizeTerminal(msgspec.Struct, frozen=True, tag=True):
    num_rows: int
    num_columns: int


class TypeInput(msgspec.Struct, frozen=True, tag=True):
    """Input for the command's terminal."""

    text: bytes


class CommandStarted(msgspec.Struct, frozen=True, tag=True):
    pid: int


class CommandNotStarted(msgspec.Struct, frozen=True, tag=True):
    reason: str


class CommandEnded(msgspec.Struct, frozen=True, tag=True):
    """The message of an agent about the end of its command."""

    code: int | None
    """The exit status, -N for death by signal N; None if the agent was killed, and its command with it."""
    problems: tuple[str, ...] = ()
    """Messages about what could not be recorded."""


AgentMessage = SendSignal | ResizeTerminal | TypeInput
"""A message of the starter, after the order."""
AgentAnswer = CommandStarted | CommandNotStarted | CommandEnded
