"""torch's events of the ranks, for `--event-log-handler`."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from core_sdk.processes import Outcome, Succeeded
from launch._command_line import UsageError
from launch._framework import Start
from launch._torchrun._config import LaunchConfig

_NO_HANDLER = "null"


class EventLog:
    """Records the start and the end of ranks. Without a handler it does nothing, and torch is not imported."""

    def __init__(self, config: LaunchConfig) -> None:
        """Raises `UsageError` for an unknown handler."""
        self._config = config
        self._pids: Mapping[int, int] = {}
        self._facts: dict[str, Any] = {}
        if config.options.event_log_handler != _NO_HANDLER:
            from torch.distributed.elastic.events import get_logging_handler  # type: ignore[attr-defined]

            try:
                get_logging_handler(config.options.event_log_handler)
            except KeyError:
                raise UsageError(
                    f"--event-log-handler={config.options.event_log_handler} is not registered with torch"
                ) from None

    def started(self, pids: Mapping[int, int], start: Start, num_restarts: int) -> None:
        """Records that ranks have been started; `pids` are by rank."""
        self._pids = pids
        self._facts = {
            "run_id": self._config.run_id,
            "group_rank": start.node_rank,
            "role": self._config.options.role,
            "hostname": socket.gethostname(),
            "rdzv_backend": self._config.rendezvous.backend if self._config.rendezvous else "static",
            "agent_restarts": num_restarts,
            "metadata": json.dumps({"group_world_size": start.num_nodes}),
        }
        self._record_all("START")

    def ended(self, outcome: Outcome | None) -> None:
        """Records that the ranks have ended, or have been ended for another start."""
        self._record_all("SUCCEEDED" if isinstance(outcome, Succeeded) else "FAILED")

    def _record_all(self, state: str) -> None:
        if self._config.options.event_log_handler == _NO_HANDLER:
            return
        from torch.distributed.elastic.events import Event, EventSource, record  # type: ignore[attr-defined]

        for rank, pid in self._pids.items():
            facts = self._facts | {"global_rank": rank, "worker_id": str(pid), "state": state}
            event = Event(f"torchelastic.worker.status.{state}", EventSource.WORKER, metadata=facts)
            record(event, self._config.options.event_log_handler)
