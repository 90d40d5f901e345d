"""The stop flag of a training, and the reason why it was set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from core_sdk._ground.records import STOPPED_BY_SEARCHER
from core_sdk.core import PreemptContext

StopReason = Literal["preempted", "stopped", "searcher"]


class StopFlag:
    """Combines the stop flag of the Core API with the wish of the training itself to stop."""

    def __init__(self, preempt: PreemptContext, is_wished: Callable[[], bool], own_wish: str) -> None:
        """`own_wish` names the call by which the training itself asks for its stop. One rank's wish suffices."""
        self._preempt = preempt
        self._should_preempt = preempt.should_preempt
        self._is_wished = is_wished
        self._own_wish = own_wish
        self._has_asked = False

    def is_set(self) -> bool:
        """Returns whether the training should stop.

        All ranks ask equally often; it becomes True at the same call on all.
        """
        if not self._has_asked and self._is_wished():
            self._has_asked = True
            self._preempt.ask_to_stop(self._own_wish)
        if not self._should_preempt(auto_ack=False):
            return False
        if self._preempt.stop_source != self._own_wish:
            # The trial is to be resumed; one that has stopped itself is complete.
            self._preempt.acknowledge_preemption_signal()
        return True

    @property
    def reason(self) -> StopReason:
        """Returns why the flag was set. Call it only after it was set."""
        source = self._preempt.stop_source
        if source == self._own_wish:
            return "stopped"
        return "searcher" if source == STOPPED_BY_SEARCHER else "preempted"
