"""The status of a home's experiments as their journals tell it, for when a master does not answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from core_sdk.errors import CoreSDKError
from core_sdk.experiments.following import FollowedExperiment
from core_sdk.master.machine import Machine
from core_sdk.tracking.home import Home


def journaled_status(home: Home) -> dict[str, Any]:
    """Returns a status in the form of a master's, without what only the master knows."""
    return {**Machine.here().description, "clusters": [], "experiments": list(_experiments(home))}


def _experiments(home: Home) -> Iterator[dict[str, Any]]:
    for experiment_id in home.experiment_ids():
        with contextlib.suppress(CoreSDKError):  # damaged, or deleted meanwhile
            search = home.experiment(experiment_id).read().search
            if search is None or search.has_ended:
                continue
            followed = FollowedExperiment(home, experiment_id)
            for _ in followed.read():
                pass
            experiment, is_here = followed.experiment, followed.experiment.config.resources.engine == "local"
            yield {
                "experiment_id": experiment_id,
                "state": experiment.state,
                "priority": experiment.priority,
                "max_slots": experiment.max_slots,
                "suspended": "its master does not answer",
                "waiting": len(experiment.waiting),
                "cluster": "" if is_here else experiment.config.resources.address or "auto",
                "running": [
                    {"trial_id": trial.trial_id, "slots": list(trial.slots) if is_here else [], "node": ""}
                    for trial in experiment.running()
                ],
            }
