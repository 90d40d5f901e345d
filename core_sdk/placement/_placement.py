"""The place of one node among those of a job."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

# Above the ports of well-known services, below those that systems and Kubernetes give away.
_FIRST_PORT = 10_000
_NUM_PORTS = 20_000


@dataclass(frozen=True)
class Placement:
    """One launcher per node, placed by a scheduler."""

    scheduler: Literal["slurm", "kubernetes"]
    job: str
    """What names it among all jobs; the same after a requeue."""
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
    return _FIRST_PORT + int.from_bytes(digest[:8], "big") % _NUM_PORTS
