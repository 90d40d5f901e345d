"""Reads what trainings recorded: experiments, trials, metrics, logs and checkpoints, from Python.

    from core_sdk import client

    trial = client.get_trial(1)
    frame = pandas.DataFrame(trial.metrics_frame("validation"))
    path = trial.list_checkpoints()[0].download()

The functions read the home of this process's environment (`CORE_SDK_HOME`); `Tracker(home)` reads any other. Objects
hold what was true when they were looked up; `reload()` looks again. Names and semantics are those of Determined's
client wherever the tracker has the data. A call of that client that needs a master raises `NoMasterError`, which says
what to do instead. An argument that has no meaning here, such as `users`, does not exist, so that Python refuses it by
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core_sdk.client._functions import (
    get_checkpoint,
    get_experiment,
    get_trial,
    iter_trials_metrics,
    list_experiments,
    logout,
    stream_trials_metrics,
    stream_trials_training_metrics,
    stream_trials_validation_metrics,
)
from core_sdk.client._logs import LogLevel
from core_sdk.client._metrics import TrialMetrics
from core_sdk.client._objects import Checkpoint, CheckpointTraining, DownloadMode, Experiment, Trial
from core_sdk.client._order import (
    CheckpointSortBy,
    CheckpointState,
    ExperimentSortBy,
    OrderBy,
    TrialSortBy,
)
from core_sdk.client._order import State as ExperimentState
from core_sdk.client._order import State as TrialState
from core_sdk.client._tracker import Determined, Tracker, login
from core_sdk.client._without_master import FUNCTIONS, needs_master

# Older names, which scripts still say.
CheckpointOrderBy = ExperimentOrderBy = TrialOrderBy = OrderBy

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "CheckpointTraining",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentSortBy",
    "ExperimentState",
    "LogLevel",
    "OrderBy",
    "Tracker",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialSortBy",
    "TrialState",
    "get_checkpoint",
    "get_experiment",
    "get_trial",
    "iter_trials_metrics",
    "list_experiments",
    "login",
    "logout",
    "stream_trials_metrics",
    "stream_trials_training_metrics",
    "stream_trials_validation_metrics",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in FUNCTIONS:
            return needs_master(f"client.{name}()", FUNCTIONS[name])
        raise AttributeError(f"module 'core_sdk.client' has no attribute {name!r}")
