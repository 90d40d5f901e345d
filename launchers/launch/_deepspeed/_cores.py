"""The cores that `--bind_cores_to_rank` shares out among a node's ranks."""

from __future__ import annotations

import os
import sys

from launch._command_line import UsageError
from launch._deepspeed._core_binding import parse_cores, physical_cores
from launch._deepspeed._options import DeepSpeedOptions


def cores_to_share(options: DeepSpeedOptions) -> list[int]:
    """Raises `UsageError`."""
    if sys.platform != "linux":
        raise UsageError(f"--bind_cores_to_rank: {sys.platform} binds no process to cores")
    if not options.cores:
        return physical_cores()
    try:
        cores = parse_cores(options.cores)
    except ValueError:
        raise UsageError(f"--bind_core_list={options.cores} is no list of cores: write 0-3,8") from None
    if missing := [str(core) for core in cores if core not in os.sched_getaffinity(0)]:
        raise UsageError(f"--bind_core_list={options.cores}: this process may not run on core {', '.join(missing)}")
    if len(set(cores)) < len(cores) or not cores:
        raise UsageError(f"--bind_core_list={options.cores} names a core twice, or none")
    return cores
