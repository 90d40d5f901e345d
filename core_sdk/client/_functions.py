"""The methods of a `Tracker` as functions, which use the home of this process's environment, or a workspace."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from core_sdk.client._tracker import Tracker

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _asking_environment(method: Callable[Concatenate[Tracker, _P], _T]) -> Callable[_P, _T]:
    """Returns a function that calls the method on a new `Tracker`, so that each call reads the present environment.

    After `login` to a workspace, it asks that one.
    """

    @functools.wraps(method)
    def ask(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return method(Tracker.present(), *args, **kwargs)

    signature = inspect.signature(method)
    without_self = signature.replace(parameters=list(signature.parameters.values())[1:])
    ask.__signature__ = without_self  # type: ignore[attr-defined]
    return ask


begin_study = _asking_environment(Tracker.begin_study)
compare = _asking_environment(Tracker.compare)
create_experiment = _asking_environment(Tracker.create_experiment)
ui = _asking_environment(Tracker.ui)
create_model = _asking_environment(Tracker.create_model)
get_model = get_model_by_id = _asking_environment(Tracker.get_model)
list_models = get_models = _asking_environment(Tracker.list_models)
get_model_labels = _asking_environment(Tracker.get_model_labels)
list_experiments = _asking_environment(Tracker.list_experiments)
get_experiment = _asking_environment(Tracker.get_experiment)
list_trials = _asking_environment(Tracker.list_trials)
list_checkpoints = _asking_environment(Tracker.list_checkpoints)
get_study = _asking_environment(Tracker.get_study)
get_trial = _asking_environment(Tracker.get_trial)
get_checkpoint = _asking_environment(Tracker.get_checkpoint)
iter_trials_metrics = stream_trials_metrics = _asking_environment(Tracker.iter_trials_metrics)
trials_frame = _asking_environment(Tracker.trials_frame)
stream_trials_training_metrics = _asking_environment(Tracker.stream_trials_training_metrics)
stream_trials_validation_metrics = _asking_environment(Tracker.stream_trials_validation_metrics)


def logout() -> None:
    """Lets the functions of the client ask the home again."""
    Tracker.workspace = None


def connect(workspace: str) -> Tracker:
    """Returns a tracker of a workspace on a server, by its address or by the name of a login of `core-sdk login`.

    Its trials, metrics, checkpoints and comparisons are asked of the server, each as of its own moment. What needs the
    files of a home, such as code, raises `WorkspaceError`. Raises `UnknownWorkspaceError`.
    """
    return Tracker.connected(workspace)
