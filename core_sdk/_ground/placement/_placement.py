"""The place of one node among the nodes of a job."""

from __future__ import annotations

import hashlib

import msgspec

from core_sdk.errors import PlacementError

MEETING_PORTS = range(10_000, 30_000)
"""Ports above the range of well-known services, and below the ranges that systems and Kubernetes assign."""


class Placement(msgspec.Struct, frozen=True):
    """The nodes of a job, on each of which a scheduler has started one launcher."""

    addresses: tuple[str, ...]
    """The addresses of all nodes, beginning with the first node."""
    node_rank: int
    slots: int | None
    """The job's GPUs on this node; None if the scheduler does not say."""
    port: int
    """The port on the first node at which the nodes meet."""


def port_of(job: str) -> int:
    """Returns a port that is the same on all nodes of a job, and rarely the same as another job's."""
    digest = hashlib.sha256(job.encode(errors="surrogateescape")).digest()
    return MEETING_PORTS[int.from_bytes(digest[:8], "big") % len(MEETING_PORTS)]


def bad_variable(name: str, value: str | None, expected: str) -> PlacementError:
    """Returns the error of a variable that the scheduler has not set, or has set to a strange value."""
    found = "is not set" if value is None else f"is {value!r}"
    return PlacementError(
        f"the scheduler's {name} {found}; expected: {expected}. Let the scheduler start the launcher, or give it "
        "--nnodes, --node-rank and --master-addr."
    )
