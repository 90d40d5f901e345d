"""The records of the home that the environment names."""

from __future__ import annotations

from core_sdk.environment import Environment
from core_sdk.tracking import Home, HomeTracker


def open_tracker() -> HomeTracker:
    """Raises `HomeTooNewError`. A home that does not exist is empty."""
    return HomeTracker(Home.open(Environment.read().home))
