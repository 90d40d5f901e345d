"""What the launchers differ in: how a framework is told of its ranks.

torchrun's agent starts the ranks for all of them, so a framework translates its own options to torchrun's, and says
what its library reads beside torchrun's variables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch._ssh._hostfile import Spread
from launch._store import Store


@dataclass(frozen=True)
class Start:
    """One start of the ranks, seen from this node."""

    node_rank: int
    num_nodes: int
    local_size: int
    """Ranks on this node."""
    chief_address: str
    """Where the first node is reached; "localhost" or its like on a single node."""
    store: Store
    """A fresh one for each start of the ranks."""


class Framework(ABC):
    module: str
    """The launcher's: `launch.deepspeed`."""
    overridden: str
    """The program whose options may stand before `--`."""
    own_options: Mapping[str, int] = {}
    """Options of the launcher's own, which need no `--`: the names, and how many values each has."""

    @abstractmethod
    def torchrun_options(self, overrides: Sequence[str]) -> tuple[str, ...]:
        """What the overrides mean in torchrun's words. Raises `UsageError`, `HelpWanted`."""

    def spread(self, overrides: Sequence[str]) -> Spread | None:
        """The hosts that the overrides name, if they do. Raises `UsageError`."""
        return None

    def meet(self, start: Start) -> None:  # noqa: B027 - most have nothing to prepare
        """The nodes have met, and the ranks are about to be started; on every node, before each start."""

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        """What a rank is told, beside torchrun's variables for it, which are given."""
        return {}

    def prefix(self) -> tuple[str, ...]:
        """What each rank's program is started by, in the words of a command line."""
        return ()

    def close(self) -> None:  # noqa: B027 - nor to end
        """No ranks will be started any more."""
