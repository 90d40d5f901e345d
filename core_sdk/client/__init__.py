"""Reads what trainings recorded: experiments, trials, metrics, logs and checkpoints, from Python.

    from core_sdk import client

    trial = client.get_trial(1)
    frame = pandas.DataFrame(trial.metrics_frame("validation"))
    path = trial.list_checkpoints()[0].download()

The functions read the home of this process's environment (`CORE_SDK_HOME`); `Tracker(home)` reads any other. Objects
hold what was true when they were looked up; `reload()` looks again. Names and semantics are those of the predecessor's
client where the tracker has what they speak of. An argument of the predecessor's that has no meaning here, such as
`users`, does not exist, so that Python refuses it by name.
"""

from core_sdk.client._checkpoint import Checkpoint, CheckpointTraining
from core_sdk.client._experiment import Experiment
from core_sdk.client._functions import (
    get_checkpoint,
    get_experiment,
    get_trial,
    iter_trials_metrics,
    list_experiments,
    login,
)
from core_sdk.client._metrics import TrialMetrics
from core_sdk.client._order import (
    CheckpointSortBy,
    CheckpointState,
    ExperimentSortBy,
    ExperimentState,
    OrderBy,
    TrialSortBy,
    TrialState,
)
from core_sdk.client._tracker import Tracker
from core_sdk.client._trial import Trial

__all__ = [
    "Checkpoint",
    "CheckpointSortBy",
    "CheckpointState",
    "CheckpointTraining",
    "Experiment",
    "ExperimentSortBy",
    "ExperimentState",
    "OrderBy",
    "Tracker",
    "Trial",
    "TrialMetrics",
    "TrialSortBy",
    "TrialState",
    "get_checkpoint",
    "get_experiment",
    "get_trial",
    "iter_trials_metrics",
    "list_experiments",
    "login",
]
