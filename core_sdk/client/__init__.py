"""Submits experiments from Python, and reads what trainings recorded: trials, metrics, logs and checkpoints.

    from core_sdk import client

    experiment = client.create_experiment("search.yaml", ".")
    experiment.wait()
    checkpoint = experiment.top_checkpoint()
    frame = pandas.DataFrame(checkpoint.get_trial().metrics_frame("validation"))
    path = checkpoint.download()

The functions use the home of this process's environment (`CORE_SDK_HOME`); `Tracker(home)` uses any other home, and
`connect("https://lab.example.org/w/vision")` a workspace on a server, whose trials, metrics and checkpoints it lists.
Objects hold the state at the time of their look-up; `reload()` looks them up again. Reading needs no master. A call
that changes a submitted experiment starts a master if none runs. Names and semantics come from Determined's client.
A call of that client that has no meaning in a home raises `NoMasterError`, which says what to do instead. Arguments
without a meaning here, such as `users`, do not exist, so that Python refuses them by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core_sdk._analysis.studies import Board, BoardLine
from core_sdk._home.finding.time_ledger import TimeLedger
from core_sdk.client._comparison import ComparedGroup, Comparison
from core_sdk.client._functions import (
    begin_study,
    compare,
    connect,
    create_experiment,
    create_model,
    get_checkpoint,
    get_experiment,
    get_model,
    get_model_by_id,
    get_model_labels,
    get_models,
    get_study,
    get_trial,
    iter_trials_metrics,
    list_checkpoints,
    list_experiments,
    list_models,
    list_trials,
    logout,
    stream_trials_metrics,
    stream_trials_training_metrics,
    stream_trials_validation_metrics,
    trials_frame,
    ui,
)
from core_sdk.client._logs import LogLevel
from core_sdk.client._media import ReportedMedia
from core_sdk.client._metrics import TrialMetrics
from core_sdk.client._models import Model, ModelVersion
from core_sdk.client._objects import Checkpoint, CheckpointTraining, Experiment, Trial
from core_sdk.client._orders.order import (
    CheckpointSortBy,
    CheckpointState,
    ExperimentSortBy,
    ModelSortBy,
    OrderBy,
    TrialSortBy,
)
from core_sdk.client._orders.order import TrainingState as ExperimentState
from core_sdk.client._orders.order import TrainingState as TrialState
from core_sdk.client._steered.checkpoint import DownloadMode
from core_sdk.client._studies import Study
from core_sdk.client._tracker import Determined, Tracker, login
from core_sdk.client._unavailable import FUNCTIONS, unavailable

# Older names, which scripts still use.
CheckpointOrderBy = ExperimentOrderBy = ModelOrderBy = TrialOrderBy = OrderBy

__all__ = [
    "Board",
    "BoardLine",
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "CheckpointTraining",
    "ComparedGroup",
    "Comparison",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentSortBy",
    "ExperimentState",
    "LogLevel",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "ReportedMedia",
    "Study",
    "TimeLedger",
    "Tracker",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialSortBy",
    "TrialState",
    "begin_study",
    "compare",
    "connect",
    "create_experiment",
    "create_model",
    "get_checkpoint",
    "get_experiment",
    "get_model",
    "get_model_by_id",
    "get_model_labels",
    "get_models",
    "get_study",
    "get_trial",
    "iter_trials_metrics",
    "list_checkpoints",
    "list_experiments",
    "list_models",
    "list_trials",
    "login",
    "logout",
    "stream_trials_metrics",
    "stream_trials_training_metrics",
    "stream_trials_validation_metrics",
    "trials_frame",
    "ui",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in FUNCTIONS:
            return unavailable(f"client.{name}()", FUNCTIONS[name])
        raise AttributeError(f"module 'core_sdk.client' has no attribute {name!r}")
