"""What a master says of itself."""

from __future__ import annotations

from typing import Any

from core_sdk.environment import Environment
from core_sdk.experiments.calling import call_running
from core_sdk.experiments.reviving import revive_master


def read_status() -> dict[str, Any] | None:
    """None where no master runs; one that was killed, and is needed, is brought back first."""
    home = Environment.read().home
    revive_master(home, waits=True)
    return call_running(home, "status")
