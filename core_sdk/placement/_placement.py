"""The place of one node among those of a job."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

MEETING_PORTS = range(10_000, 30_000)
"""Above the ports of well-known services, below those that systems and Kubernetes give away."""


@dataclass(frozen=True)
class Placement:
    """One launcher per node, placed by a scheduler."""

    addresses: tuple[str, ...]
    """Of all nodes, the first node first."""
    node_rank: int
    slots: int | None
    """GPUs of the job on this node; None where the scheduler does not say."""
    port: int
    """Where the nodes meet, on the first one."""


def port_of(job: str) -> int:
    """The same on all nodes of a job, and hardly ever that of another job."""
    digest = hashlib.sha256(job.encode(errors="surrogateescape")).digest()
    return MEETING_PORTS[int.from_bytes(digest[:8], "big") % len(MEETING_PORTS)]
