"""Which trial has which slot, of this machine and of Ray clusters, from what the master tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OccupiedSlot:
    """A slot, and the trial on it, if there is one."""

    slot: int
    """Its number on its machine or node."""
    gpu: str | None
    """CUDA's name of it; None for a place on the CPU, and where Ray gives out the GPUs."""
    experiment_id: int | None
    trial_id: int | None
    node: str = ""
    """The node of a Ray cluster; empty for this machine."""
    device: str = ""
    cluster: str = ""
    """The address of the Ray cluster; empty for this machine."""


def occupied_slots(status: Mapping[str, Any]) -> list[OccupiedSlot]:
    """Those of this machine, and then those of each cluster."""
    return [*_here(status), *_of_clusters(status)]


def _here(status: Mapping[str, Any]) -> Iterator[OccupiedSlot]:
    users = {
        slot: (experiment["experiment_id"], trial["trial_id"])
        for experiment in status["experiments"]
        if not experiment["cluster"]
        for trial in experiment["running"]
        for slot in trial["slots"]
    }
    for slot, gpu in enumerate(status["gpus"] or [None] * status["num_slots"]):
        yield OccupiedSlot(slot, gpu, *users.get(slot, (None, None)), device="CPU" if gpu is None else f"GPU {gpu}")


def _of_clusters(status: Mapping[str, Any]) -> Iterator[OccupiedSlot]:
    """Which slots of its node a trial has is Ray's affair: they are shown in the order of the trials."""
    for cluster in status["clusters"]:
        address = cluster["address"]
        for node in cluster["nodes"]:
            users = [
                (experiment["experiment_id"], trial["trial_id"])
                for experiment in status["experiments"]
                if experiment["cluster"] == address
                for trial in experiment["running"]
                if trial["node"] == node["node"]
                for _ in trial["slots"]
            ]
            for slot in range(node["num_slots"]):
                experiment_id, trial_id = users[slot] if slot < len(users) else (None, None)
                yield OccupiedSlot(slot, None, experiment_id, trial_id, node["node"], node["device"], address)
