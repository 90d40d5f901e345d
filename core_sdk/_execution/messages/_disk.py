"""Looks now and then whether the storage of a trial will be full before the trial ends, and posts that once."""

from __future__ import annotations

import time

from core_sdk._home.folders import TrialFolder

_EVERY_S = 600.0


class FullDisks:
    """The forecast of one trial, for the agent beside it."""

    def __init__(self, folder: TrialFolder) -> None:
        self._folder = folder
        self._next_s = time.monotonic() + _EVERY_S

    def post(self) -> None:
        """Posts a storage that will be full, once for each attempt. Reads nothing if the home has no targets."""
        if time.monotonic() < self._next_s or not (self._folder.home_root / "notify.json").exists():
            return
        self._next_s = time.monotonic() + _EVERY_S
        from core_sdk._execution.messages._forecasts import post_forecast  # agents live long, and few need the index

        post_forecast(self._folder)
