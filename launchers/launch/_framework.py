"""What differs between the launchers: how the ranks of a framework are told where they are.

torchrun's agent starts the ranks for all frameworks. So a framework translates its own options to torchrun's, and adds
the variables that its library reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core_sdk.environment import LaunchSettings
from core_sdk.processes import CaughtSignals
from launch._command_line import Command
from launch._directory import LaunchDirectory
from launch._ssh._hostfile import SshLaunch

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Start:
    """One start of the ranks, seen from this node."""

    node_rank: int
    num_nodes: int
    local_size: int
    """The number of ranks on this node."""
    chief_address: str
    """The address of the first node; "localhost" or its like on a single node."""
    store: Store
    """Shared by the nodes' launchers, and empty at each start. Raises `RuntimeError` when it is gone."""


class Framework(ABC):
    module: str
    """The launcher's module: `launch.deepspeed`."""
    overridden: str
    """The program whose options may stand before `--`."""
    own_options: Mapping[str, int] = {}
    """Options that need no `--` behind them, with the number of their values."""

    @abstractmethod
    def torchrun_options(self, overrides: Sequence[str]) -> tuple[str, ...]:
        """The options of torchrun that have the meaning of the overrides. Raises `UsageError`, `HelpWanted`."""

    def ssh_launch(self, overrides: Sequence[str]) -> SshLaunch | None:
        """The hosts that the overrides name, if they name any. Raises `UsageError`."""
        return None

    def meet(self, start: Start) -> None:  # noqa: B027 - most have nothing to prepare
        """Called on every node before each start of the ranks, when the nodes have met."""

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        """The variables of a rank beside torchrun's, which are given."""
        return {}

    def prefix(self) -> tuple[str, ...]:
        """The command that starts each rank's program, which follows it as arguments."""
        return ()

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """No ranks will be started any more."""


@dataclass(frozen=True)
class Launch:
    """What one launcher process works with."""

    framework: Framework
    command: Command
    settings: LaunchSettings
    directory: LaunchDirectory
    signals: CaughtSignals
