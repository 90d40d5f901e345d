"""Computes how long a process that was asked to stop may take to save."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from core_sdk._ground.environment.names import GRACE_VARIABLE

logger = logging.getLogger("core_sdk.checkpoint")

# Saves do not all take equally long.
_MARGIN = 1.25
# What is left when a save is given up, for recording how the training ended: then everything is killed.
_RESERVED_SHARE = 0.1
_MAX_RESERVED_S = 2.0


class Grace(msgspec.Struct, frozen=True):
    """The time that is left after a stop was asked for. With `total_s` None it never ends."""

    total_s: float | None
    stop_known_at: Callable[[], float | None]
    """The time at which a stop was asked for, by `time.monotonic()`; None as long as none is."""

    @classmethod
    def endless(cls) -> Grace:
        return cls(None, lambda: None)

    def has_begun(self) -> bool:
        return self.stop_known_at() is not None

    def is_over(self) -> bool:
        stop_known_at = self.stop_known_at()
        if stop_known_at is None or self.total_s is None:
            return False
        reserved_s = min(_RESERVED_SHARE * self.total_s, _MAX_RESERVED_S)
        return time.monotonic() >= stop_known_at + self.total_s - reserved_s

    def warn_if_shorter_than(self, duration_s: float) -> None:
        """Warns if the grace is too short for a save that takes `duration_s`."""
        if self.total_s is not None and self.total_s < _MARGIN * duration_s:
            logger.warning(
                "the first checkpoint took %.1f s, and after a stop there are %g s to end: too few to rely on. "
                "Set %s to %.0f or more",
                duration_s,
                self.total_s,
                GRACE_VARIABLE,
                2 * duration_s + 1,
            )
