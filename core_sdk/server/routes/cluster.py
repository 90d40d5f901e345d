"""The master: its queue and its slots."""

from __future__ import annotations

import msgspec

from core_sdk.experiments.calling import call_running
from core_sdk.master.machine import Machine
from core_sdk.server.records import Records


class QueuedExperiment(msgspec.Struct, frozen=True):
    experiment_id: int
    name: str
    state: str
    priority: int
    """Smaller numbers are served first."""
    running: list[int]
    """Trials."""
    num_waiting: int
    problem: str
    """Why it stands still although it is active; else empty."""


class QueueAnswer(msgspec.Struct, frozen=True):
    has_master: bool
    experiments: list[QueuedExperiment]
    """Those that have not ended, in the order in which they get slots."""


class Slot(msgspec.Struct, frozen=True):
    slot: int
    gpu: str | None
    """CUDA's name of it; None for a place on the CPU."""
    experiment_id: int | None
    trial_id: int | None


class SlotsAnswer(msgspec.Struct, frozen=True):
    has_master: bool
    slots: list[Slot]


def queue(records: Records) -> QueueAnswer:
    """Which experiment gets slots next."""
    status = call_running(records.tracker.home.root, "status")
    names = {row.experiment_id: row.name for row in records.snapshot().experiments.values()}
    found = [
        QueuedExperiment(
            one["experiment_id"],
            names.get(one["experiment_id"], ""),
            one["state"],
            one["priority"],
            [trial["trial_id"] for trial in one["running"]],
            one["waiting"],
            one["suspended"],
        )
        for one in (status or {"experiments": []})["experiments"]
    ]
    return QueueAnswer(status is not None, sorted(found, key=lambda one: (one.priority, one.experiment_id)))


def slots(records: Records) -> SlotsAnswer:
    """The GPUs of this machine, or its places on the CPU, and the trials on them."""
    status = call_running(records.tracker.home.root, "status")
    found = status or {"experiments": [], **Machine.here().description}
    users = {
        slot: (one["experiment_id"], trial["trial_id"])
        for one in found["experiments"]
        for trial in one["running"]
        for slot in trial["slots"]
    }
    gpus = found["gpus"] or [None] * found["num_slots"]
    return SlotsAnswer(
        status is not None, [Slot(slot, gpu, *users.get(slot, (None, None))) for slot, gpu in enumerate(gpus)]
    )
