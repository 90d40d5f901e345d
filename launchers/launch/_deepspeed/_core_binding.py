"""Divides the cores of a node among its ranks for `--bind_cores_to_rank`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from launch._command_line import UsageError


def share(cores: Sequence[int], local_rank: int, local_size: int) -> list[int]:
    """Returns a rank's cores, as DeepSpeed's launcher divides them: the same number of consecutive ones for each rank.

    Some cores may be left over.
    """
    num_cores = len(cores) // local_size
    return list(cores[num_cores * local_rank : num_cores * (local_rank + 1)])


def cores_to_share(text: str) -> list[int]:
    """Returns the cores in a list such as `0-3,8`; all physical ones for "". Raises `UsageError`."""
    if sys.platform != "linux":
        raise UsageError(f"--bind_cores_to_rank: {sys.platform} binds no process to cores")
    if not text:
        return physical_cores()
    try:
        cores = parse_cores(text)
    except ValueError:
        raise UsageError(f"--bind_core_list={text} is no list of cores: write 0-3,8") from None
    if missing := [str(core) for core in cores if core not in os.sched_getaffinity(0)]:
        raise UsageError(f"--bind_core_list={text}: this process may not run on core {', '.join(missing)}")
    if len(set(cores)) < len(cores) or not cores:
        raise UsageError(f"--bind_core_list={text} names a core twice, or none")
    return cores


def physical_cores() -> list[int]:
    """Returns the cores on which this process may run, but only one of each pair of hyperthreads."""
    allowed = os.sched_getaffinity(0)
    return [core for core in sorted(allowed) if min(_siblings(core) & allowed, default=core) == core]


def parse_cores(text: str) -> list[int]:
    """Returns the cores in a list such as `0-3,8`, in its order. Raises `ValueError`."""
    cores: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores.extend(range(int(first), int(last or first) + 1))
    return cores


def _siblings(core: int) -> set[int]:
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    with contextlib.suppress(OSError, ValueError):  # the machine does not list them
        return set(parse_cores(path.read_text()))
    return {core}
