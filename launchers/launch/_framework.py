"""The seam in which launchers differ: how the ranks of a framework learn their places.

One engine starts the ranks of all frameworks, as torchrun would. So a framework translates its own options to
torchrun's, and adds the variables that its library reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core_sdk._ground.environment import LaunchSettings
from core_sdk._machine.processes import CaughtSignals
from launch._command_line import Command, parse
from launch._directory import LaunchDirectory
from launch._ssh._hostfile import SshLaunch


class Start(msgspec.Struct, frozen=True):
    """The nodes that have met for a start of the ranks, seen from this node."""

    node_rank: int
    num_nodes: int
    chief_address: str
    """The address of the first node; on a single node "localhost" or similar."""
    port: int
    """The port at that address where torch's process groups meet."""
    store: Any
    """torch's store, which the nodes' launchers share, empty at each start; None on a single node.

    `get` blocks until another node has set the key. Raises `RuntimeError` when the store is gone.
    """


class LaunchOptions(msgspec.Struct, frozen=True):
    """The meaning of the options before `--`."""

    torchrun: tuple[str, ...] = ()
    """Options of torchrun, for a launcher that starts ranks."""
    ssh_launch: SshLaunch | None = None
    """The hosts on which to start launchers, if that has not been done."""
    devices: tuple[str, ...] = ()
    """The GPUs that this node's ranks may see; empty for all that the launcher sees."""


class Framework(ABC):
    module: str
    """The launcher's module, such as `launch.deepspeed`."""
    overridden: str
    """The program whose options may precede `--`."""
    own_options: Mapping[str, int] = {}
    """The options that need no `--` after them, with the number of their values."""

    def command(self, arguments: Sequence[str]) -> Command:
        """Splits the command line. Raises `UsageError`, `HelpWanted`."""
        return parse(arguments, self.own_options)

    @abstractmethod
    def plan(self, overrides: Sequence[str]) -> LaunchOptions:
        """Translates the overrides. Called once. Raises `CommandError`, and `SystemExit` after an answer."""

    def options_text(self) -> str:
        """Returns the help on the options that may precede `--`; empty where the overridden program has it."""
        return ""

    def meet(self, start: Start, rank_counts: Sequence[int]) -> None:  # noqa: B027 - most have nothing to prepare
        """Prepares a start. Called on every node before each start of the ranks, after the nodes have met.

        `rank_counts` has the number of ranks on each node.
        """

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the variables of a rank besides torchrun's, which are in `rank`."""
        return {}

    def cores(self, local_rank: int, local_size: int) -> Sequence[int]:
        """Returns the cores on which a rank may run; empty for the launcher's own cores."""
        return ()

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Closes what is open, when no more ranks will be started."""


class Launch(msgspec.Struct, frozen=True):
    """The objects with which a launcher process works."""

    framework: Framework
    command: Command
    plan: LaunchOptions
    settings: LaunchSettings
    directory: LaunchDirectory
    signals: CaughtSignals
