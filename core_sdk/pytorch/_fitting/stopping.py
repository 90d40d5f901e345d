"""The stop flag of a training, and the reason why it was set."""

from __future__ import annotations

from core_sdk.pytorch._context import PyTorchTrialContext
from core_sdk.pytorch._fitting.result import EndReason
from core_sdk.records import STOPPED_BY_SEARCHER

_REQUESTED = "context.set_stop_requested()"


class StopFlag:
    """Combines the stop flag of the Core API with the stop requests of the trial itself."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self._preempt = context._core.preempt
        self._should_preempt = self._preempt.should_preempt
        self._has_asked = False

    def is_set(self) -> bool:
        """Whether the training should stop. All ranks ask equally often; it becomes True at the same call on all."""
        if self._context._stop_requested and not self._has_asked:
            self._has_asked = True
            self._preempt.ask_to_stop(_REQUESTED)
        if not self._should_preempt(auto_ack=False):
            return False
        if self._preempt.stop_source != _REQUESTED:
            # The trial is to be resumed; one that has stopped itself is complete.
            self._preempt.acknowledge_preemption_signal()
        return True

    @property
    def reason(self) -> EndReason:
        """Returns why the flag was set. Call it only after it was set."""
        source = self._preempt.stop_source
        if source == _REQUESTED:
            return "stopped"
        return "searcher" if source == STOPPED_BY_SEARCHER else "preempted"
