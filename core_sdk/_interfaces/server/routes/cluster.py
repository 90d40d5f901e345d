"""The master: its queue and its slots."""

from __future__ import annotations

import contextlib

import msgspec

from core_sdk._execution.experiments.calling import call_running
from core_sdk._execution.experiments.protocol import ExperimentStatus, GetStatus, HomeStatus
from core_sdk._execution.master.journaled import journaled_status
from core_sdk._execution.master.occupancy import OccupiedSlot, busy_gpus, occupied_slots, status_without_master
from core_sdk._home.rows import ExperimentRow
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk._machine.slots import SlotDirectory
from core_sdk.errors import MasterSilentError, SlotError


class QueuedExperiment(msgspec.Struct, frozen=True):
    experiment_id: int
    name: str
    state: str
    priority: int
    """Smaller numbers are served first."""
    running: list[int]
    """Trials."""
    num_waiting: int
    max_slots: int | None
    """The largest number of slots at a time; None: as many as are free."""
    progress: float | None
    problem: str
    """The reason why it stands still although it is active; else empty."""


class QueueAnswer(msgspec.Struct, frozen=True):
    has_master: bool
    experiments: list[QueuedExperiment]
    """The experiments that have not ended, in the order in which they get slots."""


class Cluster(msgspec.Struct, frozen=True):
    """A cluster of Ray that experiments use, or Slurm, whose address is `slurm`."""

    address: str
    problem: str
    """The reason why it cannot be used just now; else empty."""


class SlotsAnswer(msgspec.Struct, frozen=True):
    has_master: bool
    slots: list[OccupiedSlot]
    clusters: list[Cluster]


def queue(shared: SharedView) -> QueueAnswer:
    """Returns the experiments in the order in which they get slots."""
    status = _status(shared)
    rows = shared.snapshot().experiments
    told = sorted(status.experiments if status else (), key=lambda one: (one.priority, one.place, one.experiment_id))
    return QueueAnswer(status is not None, [_queued(one, rows.get(one.experiment_id)) for one in told])


def _status(shared: SharedView) -> HomeStatus | None:
    """Returns the status of the home's master, or of its journals if the master does not answer; None without one."""
    try:
        return call_running(shared.home.root, GetStatus(), is_patient=False)
    except MasterSilentError:
        return journaled_status(shared.home)


def _queued(told: ExperimentStatus, row: ExperimentRow | None) -> QueuedExperiment:
    """Returns the entry of an experiment, as the master describes it. A new one has no row until the next look."""
    return QueuedExperiment(
        experiment_id=told.experiment_id,
        name=row.name if row else "",
        state=told.state,
        priority=told.priority,
        running=[trial.trial_id for trial in told.running],
        num_waiting=told.waiting,
        max_slots=told.max_slots,
        progress=row.search.progress if row and row.search else None,
        problem=told.suspended,
    )


def slots(shared: SharedView) -> SlotsAnswer:
    """Returns the slots of this machine, GPUs or places on the CPU, and of Ray clusters, and who has them."""
    status = _status(shared)
    found = status or status_without_master()
    clusters = [Cluster(one.address, one.problem) for one in found.clusters]
    tickets = []
    with contextlib.suppress(SlotError, BlockingIOError):  # commands say what is wrong with it
        tickets = SlotDirectory().read()
    return SlotsAnswer(status is not None, occupied_slots(found, shared.home.root, tickets, busy_gpus()), clusters)
