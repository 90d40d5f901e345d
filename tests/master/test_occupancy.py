"""Which trial has which slot."""

from __future__ import annotations

from typing import Any

from core_sdk.master.occupancy import occupied_slots


def _experiment(experiment_id: int, cluster: str, *running: tuple[int, list[int], str]) -> dict[str, Any]:
    trials = [{"trial_id": trial_id, "slots": slots, "node": node} for trial_id, slots, node in running]
    return {"experiment_id": experiment_id, "cluster": cluster, "running": trials}


def test_trials_are_shown_on_their_slots() -> None:
    """Trials are shown on their slots of this machine and of a cluster's nodes."""
    status = {
        "num_slots": 2,
        "gpus": ["3", "GPU-ab"],
        "clusters": [
            {"address": "ray:1", "problem": "", "nodes": [{"node": "n7", "num_slots": 3, "device": "GPU"}]},
            {"address": "ray:2", "problem": "away", "nodes": []},
        ],
        "experiments": [
            _experiment(1, "", (11, [1], "")),
            _experiment(2, "ray:1", (21, [0, 0], "n7"), (22, [0], "n8")),
        ],
    }

    slots = occupied_slots(status)

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
    slots = occupied_slots({"num_slots": 2, "gpus": [], "clusters": [], "experiments": []})

    assert [(one.slot, one.gpu, one.device, one.trial_id) for one in slots] == [
        (0, None, "CPU", None),
        (1, None, "CPU", None),
    ]
