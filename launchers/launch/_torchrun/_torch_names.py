"""Adapter for torch's `--event-log-handler` and `--numa-binding`, loaded only when these options are given.

The second builds on a private name of torch.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from launch._command_line import UsageError
from launch._torchrun._config import LaunchConfig

_NO_HANDLER = "null"


class EventLog:
    """Records the start and the end of ranks. Without a handler it does nothing, and torch is not imported."""

    def __init__(self, config: LaunchConfig) -> None:
        """Raises `UsageError` for an unknown handler."""
        self._handler = config.options.event_log_handler
        self._facts = {
            "run_id": config.run_id,
            "role": config.options.role,
            "hostname": socket.gethostname(),
            "rdzv_backend": config.rendezvous.backend if config.rendezvous else "static",
        }
        if self._handler != _NO_HANDLER:
            from torch.distributed.elastic.events import get_logging_handler  # type: ignore[attr-defined]

            try:
                get_logging_handler(self._handler)
            except KeyError:
                raise UsageError(f"--event-log-handler={self._handler} is not registered with torch") from None

    def record(self, state: str, ranks: Sequence[tuple[subprocess.Popen[bytes], dict[str, str]]]) -> None:
        """Records that ranks, given by their processes and variables, are in a state."""
        if self._handler == _NO_HANDLER:
            return
        from torch.distributed.elastic.events import Event, EventSource, record  # type: ignore[attr-defined]

        for process, variables in ranks:
            facts: dict[str, Any] = {
                "group_rank": int(variables["GROUP_RANK"]),
                "agent_restarts": int(variables["TORCHELASTIC_RESTART_COUNT"]),
                "metadata": json.dumps({"group_world_size": int(variables["GROUP_WORLD_SIZE"])}),
                "global_rank": int(variables["RANK"]),
                "worker_id": str(process.pid),
                "state": state,
            }
            event = Event(f"torchelastic.worker.status.{state}", EventSource.WORKER, metadata=self._facts | facts)
            record(event, self._handler)


def bound_to_cores(command: Sequence[str], local_rank: int, mode: str) -> list[str]:
    """Returns a command that binds the rank to cores near its GPU, as `--numa-binding` asks. Raises `UsageError`."""
    import torch

    try:
        from torch.numa import binding

        wish = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
        bind = binding._maybe_wrap_command_args_with_numa_binding
        return list(bind(tuple(command), gpu_index=local_rank, numa_options=wish))
    except Exception as error:  # torch raises AssertionError, KeyError and others, by what the node lacks
        raise UsageError(
            f"--numa-binding={mode} is not possible with torch {torch.__version__} on this node: {error}"
        ) from error
