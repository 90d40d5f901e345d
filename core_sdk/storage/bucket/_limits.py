"""Limits of transfers: how much is done at once, and for how long it is tried."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    deadline_s: float = 300.0
    """A request that has failed for so long, without any progress, has failed for good."""
    num_threads: int = 16
    """Small files cost their latency, which threads share; a store serves one stream slower than several."""
    num_contents: int = 6
    """Contents in memory at one time, each of at most 8 MiB, or one part of 16 MiB: some 100 MiB in all."""
    small_bytes: int = _MIB
    """Contents up to this size are not counted there; each thread may have one in memory."""
    whole_bytes: int = 8 * _MIB
    """Larger files travel in parts."""
    range_bytes: int = 32 * _MIB
    """Larger files come down in ranges of this size."""
    lease_s: float = 3600.0
    """A lease on another machine is abandoned if it was not renewed for so long."""
