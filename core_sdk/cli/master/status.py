"""The status that a master gives."""

from __future__ import annotations

from typing import Any

from core_sdk.cli._home import go_on
from core_sdk.environment import Environment
from core_sdk.experiments.calling import call_running


def read_status() -> dict[str, Any] | None:
    """Returns the master's status; None if none runs. One that was killed, and is needed, is started again first."""
    home = Environment.read().home
    go_on(home, waits=True)
    return call_running(home, "status")
