"""The slots of this machine and of Ray clusters, and the trials on them, according to the master."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from core_sdk.experiments.protocol import HomeStatus
from core_sdk.slots import Machine


@dataclass(frozen=True)
class OccupiedSlot:
    """A slot, and the trial on it, if there is one."""

    slot: int
    """The slot's number on its machine or node."""
    gpu: str | None
    """CUDA's name of the GPU; None for a place on the CPU, and for slots of Ray clusters."""
    experiment_id: int | None
    trial_id: int | None
    node: str = ""
    """The node of a Ray cluster; empty for this machine."""
    device: str = ""
    cluster: str = ""
    """The address of the Ray cluster; empty for this machine."""


def status_without_master() -> HomeStatus:
    """Returns the status of a home that has no master: free slots, and no experiments."""
    machine = Machine.here()
    return HomeStatus(num_slots=machine.num_slots, gpus=machine.gpus)


_NOBODY: tuple[int | None, int | None] = None, None


def occupied_slots(status: HomeStatus) -> list[OccupiedSlot]:
    """Returns the slots of this machine, and then those of each cluster."""
    return [*_here(status), *_of_clusters(status)]


def _here(status: HomeStatus) -> Iterator[OccupiedSlot]:
    users = {
        slot: (experiment.experiment_id, trial.trial_id)
        for experiment in status.experiments
        if not experiment.cluster
        for trial in experiment.running
        for slot in trial.slots
    }
    for slot, gpu in enumerate(status.gpus or [None] * status.num_slots):
        yield OccupiedSlot(slot, gpu, *users.get(slot, _NOBODY), device="CPU" if gpu is None else f"GPU {gpu}")


def _of_clusters(status: HomeStatus) -> Iterator[OccupiedSlot]:
    """Yields the slots of clusters. Only Ray knows which slots a trial has: they are shown in the order of trials."""
    for cluster in status.clusters:
        for node in cluster.nodes:
            users = [
                (experiment.experiment_id, trial.trial_id)
                for experiment in status.experiments
                if experiment.cluster == cluster.address
                for trial in experiment.running
                if trial.node == node.node
                for _ in trial.slots
            ]
            for slot in range(node.num_slots):
                experiment_id, trial_id = users[slot] if slot < len(users) else (None, None)
                yield OccupiedSlot(slot, None, experiment_id, trial_id, node.node, node.device, cluster.address)
