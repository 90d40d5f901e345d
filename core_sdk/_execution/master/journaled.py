"""The status of a home's experiments as their journals tell it, for when a master does not answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from core_sdk._execution.experiments.protocol import ExperimentStatus, HomeStatus, RunningTrial
from core_sdk._execution.master.occupancy import status_without_master
from core_sdk._home.folders import Home
from core_sdk.errors import CoreSDKError


def journaled_status(home: Home, problem: str = "its master does not answer") -> HomeStatus:
    """Returns a status in the form of a master's, without what only the master knows; `problem` says why without."""
    return msgspec.structs.replace(status_without_master(), experiments=tuple(_experiments(home, problem)))


def _experiments(home: Home, problem: str) -> Iterator[ExperimentStatus]:
    for experiment_id in home.experiment_ids():
        with contextlib.suppress(CoreSDKError):  # damaged, or deleted meanwhile
            search = home.experiment(experiment_id).read().own_search
            if search is None or search.has_ended:
                continue
            from core_sdk._execution.experiments.following import FollowedExperiment  # searches, which few homes have

            followed = FollowedExperiment(home, experiment_id)
            for _ in followed.read():
                pass
            experiment, is_here = followed.experiment, followed.experiment.config.resources.engine == "local"
            yield ExperimentStatus(
                experiment_id,
                experiment.state,
                experiment.priority,
                experiment.max_slots,
                problem,
                len(experiment.waiting),
                experiment.config.resources.cluster,
                tuple(
                    RunningTrial(trial.trial_id, trial.slots if is_here else ())
                    for trial in experiment.running()
                    if trial.trial_id is not None
                ),
                next(iter(experiment.waiting.values()), None),
                experiment.place,
            )
