"""What the pool asks of the process that is connected to Ray, and what it hears, of attempts by their names."""

from __future__ import annotations

from typing import Literal, NamedTuple

from core_sdk.master.pools._order import AttemptOrder

Device = Literal["CPU", "GPU"]


class Node(NamedTuple):
    """A node that lives."""

    node_id: str
    """Another one after each start of Ray on it."""
    host: str
    """For people. Where several nodes are on one host, each has a name of its own."""
    device: Device
    num_slots: int
    num_foreign: int
    """Slots that other programs hold."""


class Place(NamedTuple):
    """Find slots for the attempt, and claim it there."""

    order: AttemptOrder


class Watch(NamedTuple):
    """Start the claimed attempt on its node, if that is not done, and tell of its end."""

    order: AttemptOrder
    node_id: str
    number: int


class Signal(NamedTuple):
    name: str
    number: int


class Drop(NamedTuple):
    """Take the attempt back, which is not wanted any more."""

    name: str


Ask = Place | Watch | Signal | Drop


class Located(NamedTuple):
    """Ray has found slots for the attempt. An empty `node_id`: it is looking for others, since the node has died."""

    name: str
    node_id: str


class Claimed(NamedTuple):
    name: str
    number: int
    node_id: str


class Failed(NamedTuple):
    """The attempt could not be claimed."""

    name: str
    reason: str


class Over(NamedTuple):
    """The attempt has ended. `problem` says why it could not even be started."""

    name: str
    problem: str


class Gone(NamedTuple):
    """The attempt has ended with its node."""

    name: str


News = Located | Claimed | Failed | Over | Gone
