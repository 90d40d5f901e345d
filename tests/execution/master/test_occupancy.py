"""Which trial has which slot."""

from __future__ import annotations

from pathlib import Path

from core_sdk._execution.experiments.protocol import (
    ClusterStatus,
    ExperimentStatus,
    HomeStatus,
    NodeStatus,
    RunningTrial,
)
from core_sdk._execution.master.occupancy import occupied_slots
from core_sdk._machine.slots import PostedTicket


def _experiment(experiment_id: int, cluster: str, *running: RunningTrial) -> ExperimentStatus:
    return ExperimentStatus(experiment_id, "ACTIVE", 42, None, cluster=cluster, running=running)


def test_trials_are_shown_on_their_slots() -> None:
    """Trials are shown on their slots of this machine and of a cluster's nodes."""
    status = HomeStatus(
        num_slots=2,
        gpus=("3", "GPU-ab"),
        clusters=(ClusterStatus("ray:1", nodes=(NodeStatus("n7", 3, "GPU"),)), ClusterStatus("ray:2", "away")),
        experiments=(
            _experiment(1, "", RunningTrial(11, (1,))),
            _experiment(2, "ray:1", RunningTrial(21, (0, 0), ("n7",)), RunningTrial(22, (0,), ("n8",))),
        ),
    )

    slots = occupied_slots(status, Path("/h"))

    shown = [(one.cluster, one.node, one.slot, one.device, one.experiment_id, one.trial_id) for one in slots]
    assert shown == [
        ("", "", 0, "GPU 3", None, None),
        ("", "", 1, "GPU GPU-ab", 1, 11),
        ("ray:1", "n7", 0, "GPU", 2, 21),
        ("ray:1", "n7", 1, "GPU", 2, 21),
        ("ray:1", "n7", 2, "GPU", None, None),
    ]


def test_a_machine_without_gpus_has_places_on_its_cpu() -> None:
    """A machine without GPUs has CPU slots, numbered from 0."""
    slots = occupied_slots(HomeStatus(num_slots=2, gpus=()), Path("/h"))

    assert [(one.slot, one.gpu, one.device, one.trial_id) for one in slots] == [
        (0, None, "CPU", None),
        (1, None, "CPU", None),
    ]


def test_slots_are_shown_with_those_who_have_them() -> None:
    """Slots show whose they are, also of other users and homes, and programs that fill a GPU without having a slot."""

    def ticket(number: int, held: str, user: str, home: str | None, trial_id: int | None) -> PostedTicket:
        return PostedTicket(number, number, 1, [held], [held], user, 7, 100.0 * number, home=home, trial_id=trial_id)

    status = HomeStatus(
        num_slots=4,
        gpus=("GPU-a", "GPU-b", "GPU-c", "GPU-d"),
        experiments=(_experiment(1, "", RunningTrial(11, (0,))),),
    )
    tickets = [
        ticket(1, "GPU-a", "ann", "/h", 11),
        ticket(2, "GPU-b", "ann", "/other", 3),
        ticket(3, "cpu-0", "ben", None, None),
    ]

    slots = occupied_slots(status, Path("/h"), tickets, busy={"GPU-a", "GPU-c"})

    shown = [
        (one.device, one.user, one.since, one.experiment_id, one.trial_id, one.home, one.is_filled) for one in slots
    ]
    assert shown == [
        ("GPU GPU-a", "ann", 100.0, 1, 11, "", False),
        ("GPU GPU-b", "ann", 200.0, None, 3, "/other", False),
        ("GPU GPU-c", "", None, None, None, "", True),
        ("GPU GPU-d", "", None, None, None, "", False),
        ("CPU", "ben", 300.0, None, None, "", False),
    ]
