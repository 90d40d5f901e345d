"""The messages about attempts between the pool and the process that is connected to Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._ground.config import RayOptions

Device = Literal["CPU", "GPU"]


class ClusterNode(NamedTuple):
    """A living node of the cluster."""

    node_id: str
    """The node's id, which is another one after each start of Ray on it."""
    host: str
    """The node's name for people. Several nodes on one host have different names."""
    device: Device
    num_slots: int
    num_foreign: int
    """Slots that other programs hold."""
    labels: Mapping[str, str] = {}
    resources: Mapping[str, float] = {}
    """All its resources, by Ray's names, free or not."""
    is_leaving: bool = False
    """Whether its end was announced."""


class NodesRequest(NamedTuple):
    """The resources that a trial asks for."""

    num_nodes: int
    slots_per_node: int
    options: RayOptions


class Place(NamedTuple):
    """Find slots for the attempt, and claim it there."""

    order: AttemptOrder
    options: RayOptions


class Watch(NamedTuple):
    """Start the claimed attempt on its nodes unless it was started, and report its end."""

    order: AttemptOrder
    node_ids: tuple[str, ...]
    number: int


class Signal(NamedTuple):
    name: str
    number: int


class Drop(NamedTuple):
    """Take back the attempt, which is no longer wanted."""

    name: str


class Await(NamedTuple):
    """Let the cluster know what trials wait for, in the place of what it was told before."""

    requests: tuple[tuple[NodesRequest, int], ...]
    """Each request with the number of trials that make it."""


Ask = Place | Watch | Signal | Drop | Await


class Located(NamedTuple):
    """Ray has found slots for the attempt. If `node_ids` is empty, they were lost, and Ray looks for others."""

    name: str
    node_ids: tuple[str, ...]


class Claimed(NamedTuple):
    name: str
    number: int
    node_ids: tuple[str, ...]


class ClaimFailed(NamedTuple):
    """The attempt could not be claimed."""

    name: str
    reason: str


class Over(NamedTuple):
    """The attempt has ended. `problem` says why it could not even be started."""

    name: str
    problem: str


class Gone(NamedTuple):
    """The attempt has ended with one of its nodes, or because its command has ended there alone."""

    name: str
    node_id: str
    code: int | None = None
    """The exit status of the command that has ended alone; None if the node has died."""


News = Located | Claimed | ClaimFailed | Over | Gone
