"""The CPUs that this process may use."""

from __future__ import annotations

import os


def num_cpus() -> int:
    """Returns the number of CPUs on which this process may run; where that cannot be told, of all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
