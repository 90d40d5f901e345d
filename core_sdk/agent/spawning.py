"""The spawner of a program that starts many agents."""

from __future__ import annotations

from core_sdk.environment import agent_variables
from core_sdk.processes import Spawner


class AgentSpawner(Spawner):
    """Forks agents, which live on without it, and without this process."""

    def __init__(self) -> None:
        function = "core_sdk.agent.__main__:begin_forked"
        # An agent needs psutil at its end, and would import it anew each time.
        super().__init__(function, agent_variables(), ["psutil"], is_adopting=False)
