"""What a master says of itself."""

from __future__ import annotations

from typing import Any

from core_sdk.environment import Environment
from core_sdk.experiments.calling import call_running


def read_status() -> dict[str, Any] | None:
    """None where no master runs."""
    return call_running(Environment.read().home, "status")
