"""Placement groups, by which Ray gives an attempt its nodes, all or none, and by which an autoscaler sees what waits.

A group that waits for resources is what autoscalers add nodes for, with the shape that the attempt will have. Ray's
`request_resources` would keep the nodes for ever if the master were killed, and replace what other programs ask for.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from core_sdk._execution.master.pools.ray._messages import Device, NodesRequest

_MOST = 100
"""The number of trials for which a cluster is asked at the same time."""
# How long nothing is asked for a trial for which there was room, and which waits for something else.
_PAUSE_S = 5.0


def new_group(request: NodesRequest, device: Device, name: str = "") -> PlacementGroup:
    """Asks Ray for the nodes of an attempt. A group with a name outlives this process."""
    options, labels = request.options, request.options.labels
    return placement_group(
        [demand_of(request, device)] * request.num_nodes,
        strategy="STRICT_SPREAD",
        name=name,
        lifetime="detached" if name else None,
        bundle_label_selector=[dict(options.labels)] * request.num_nodes if labels else None,
    )


def demand_of(request: NodesRequest, device: Device) -> dict[str, float]:
    """Returns the resources that an attempt takes on each of its nodes."""
    options = request.options
    demand = {device: request.slots_per_node, **options.resources}
    if options.accelerator_type:
        demand[f"accelerator_type:{options.accelerator_type}"] = 0.001  # as Ray itself does
    # A group must ask for something.
    return {name: amount for name, amount in demand.items() if amount} or {"memory": 1}


class PendingGroups:
    """The groups of trials that wait. One that gets its resources is removed: the master decides who has them."""

    def __init__(self) -> None:
        self._requests: Sequence[tuple[NodesRequest, int]] = ()
        self._groups: defaultdict[str, list[PlacementGroup]] = defaultdict(list)
        self._rests_until: dict[str, float] = {}

    def want(self, requests: Sequence[tuple[NodesRequest, int]]) -> None:
        """Takes note of what trials wait for, in the place of what was wanted before."""
        self._requests = requests
        numbers = {repr(request): number for request, number in requests}
        for key, groups in self._groups.items():
            while len(groups) > numbers.get(key, 0):
                remove_placement_group(groups.pop())

    def take(self, request: NodesRequest) -> None:
        """Makes way for an attempt, which asks for the same itself."""
        if groups := self._groups[repr(request)]:
            remove_placement_group(groups.pop(0))

    def look(self, device: Device) -> None:
        """Removes groups that have got their resources, and asks for what is wanted."""
        if any(self._groups.values()):
            table = placement_group_table()
            for key, groups in self._groups.items():
                for group in [each for each in groups if table[each.id.hex()]["state"] == "CREATED"]:
                    groups.remove(group)
                    remove_placement_group(group)
                    self._rests_until[key] = time.monotonic() + _PAUSE_S
        num_left = _MOST
        for request, number in self._requests:
            key = repr(request)
            if time.monotonic() >= self._rests_until.get(key, 0.0):
                groups = self._groups[key]
                groups += [new_group(request, device) for _ in range(len(groups), min(number, num_left))]
                num_left -= len(groups)
