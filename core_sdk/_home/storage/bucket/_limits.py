"""Limits of transfers: their parallelism, memory and deadlines."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    deadline_s: float = 300.0
    """A request that has failed for this long, without any progress, is given up."""
    num_threads: int = 16
    """Threads overlap the latency of small files, and a store serves several streams faster than one."""
    num_contents: int = 6
    """The number of contents in memory at one time. Each has at most 8 MiB, or is a part of 16 MiB: about 100 MiB."""
    small_bytes: int = _MIB
    """Contents up to this size do not count towards `num_contents`; each thread may have one in memory."""
    whole_bytes: int = 8 * _MIB
    """Larger files are uploaded in parts."""
    range_bytes: int = 32 * _MIB
    """Larger files are downloaded in ranges of this size."""
    lease_s: float = 3600.0
    """A lease of another machine counts as abandoned if it has not been renewed for this long."""
