"""The slots of this machine and of Ray clusters, and who has them, according to the master and to all tickets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from core_sdk._execution.experiments.protocol import HomeStatus
from core_sdk._machine.slots import Machine, PostedTicket
from core_sdk.errors import MissingDependencyError


class OccupiedSlot(msgspec.Struct, frozen=True):
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
    user: str = ""
    """The user of this machine who has the slot; empty if none has a ticket for it."""
    since: float | None = None
    """The time since which that user has it, in seconds since the epoch."""
    home: str = ""
    """The home of the trial if it is another one of yours; another user's home and trial are not known."""
    is_filled: bool = False
    """Whether a program without a slot fills the memory of this GPU, as far as NVML tells."""


def status_without_master() -> HomeStatus:
    """Returns the status of a home that has no master: free slots, and no experiments."""
    machine = Machine.here()
    return HomeStatus(num_slots=machine.num_slots, gpus=machine.gpus)


_NOBODY: tuple[int | None, int | None] = None, None


def occupied_slots(
    status: HomeStatus, home: Path, tickets: Sequence[PostedTicket] = (), busy: Collection[str] = ()
) -> list[OccupiedSlot]:
    """Returns the slots of this machine, with the slots that only others use, and then the slots of each cluster.

    `busy` names GPUs of which a program, with a slot or without, fills the memory.
    """
    return [*_here(status, home, tickets, busy), *_of_clusters(status)]


def busy_gpus() -> set[str]:
    """Returns the names of GPUs of which a program fills the memory; none without the extra `gpu`."""
    try:
        from core_sdk._machine.slots.busy import busy_gpus as asked  # NVML, which takes time to open
    except MissingDependencyError:
        return set()
    return asked()


def _here(
    status: HomeStatus, home: Path, tickets: Sequence[PostedTicket], busy: Collection[str]
) -> Iterator[OccupiedSlot]:
    users = {
        slot: (experiment.experiment_id, trial.trial_id)
        for experiment in status.experiments
        if not experiment.cluster
        for trial in experiment.running
        for slot in trial.slots
    }
    holders = {name: ticket for ticket in tickets for name in ticket.held}
    names = list(Machine(status.num_slots, status.gpus).names)
    names += sorted(holders.keys() - set(names))
    for slot, name in enumerate(names):
        gpu = None if name.startswith("cpu-") else name
        device = "CPU" if gpu is None else f"GPU {gpu}"
        experiment_id, trial_id = users.get(slot, _NOBODY)
        if (ticket := holders.get(name)) is None:
            is_filled = name in busy and trial_id is None
            yield OccupiedSlot(slot, gpu, experiment_id, trial_id, device=device, is_filled=is_filled)
            continue
        is_here = ticket.home == str(home)
        yield OccupiedSlot(
            slot,
            gpu,
            experiment_id if is_here and trial_id == ticket.trial_id else None,
            ticket.trial_id,
            device=device,
            user=ticket.user,
            since=ticket.since,
            home="" if is_here or ticket.home is None else ticket.home,
        )


def _of_clusters(status: HomeStatus) -> Iterator[OccupiedSlot]:
    """Yields the slots of clusters. Only Ray knows which slots a trial has: they are shown in the order of trials."""
    for cluster in status.clusters:
        for node in cluster.nodes:
            users = [
                (experiment.experiment_id, trial.trial_id)
                for experiment in status.experiments
                if experiment.cluster == cluster.address
                for trial in experiment.running
                if node.node in trial.nodes
                for _ in range(len(trial.slots) // len(trial.nodes))
            ]
            for slot in range(node.num_slots):
                experiment_id, trial_id = users[slot] if slot < len(users) else (None, None)
                yield OccupiedSlot(slot, None, experiment_id, trial_id, node.node, node.device, cluster.address)
