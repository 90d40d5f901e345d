"""The questions to a `Tracker`, asked of the home of this process's environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core_sdk.client._metrics import TrialMetrics
from core_sdk.client._objects import Checkpoint, Experiment, Trial
from core_sdk.client._order import ExperimentSortBy, OrderBy, State
from core_sdk.client._tracker import Tracker

# Each call makes its own `Tracker`, which costs nothing, and so reads the environment of that moment.


def list_experiments(
    sort_by: ExperimentSortBy | None = None,
    order_by: OrderBy | None = None,
    experiment_ids: Iterable[int] | None = None,
    labels: Iterable[str] | None = None,
    *,
    states: Iterable[State] | None = None,
    name: str | None = None,
) -> list[Experiment]:
    """As `Tracker.list_experiments`."""
    return Tracker().list_experiments(sort_by, order_by, experiment_ids, labels, states=states, name=name)


def get_experiment(experiment_id: int | str) -> Experiment:
    """By id, or by the whole name. Raises `ExperimentNotFoundError`."""
    return Tracker().get_experiment(experiment_id)


def get_trial(trial_id: int) -> Trial:
    """Raises `TrialNotFoundError`."""
    return Tracker().get_trial(trial_id)


def get_checkpoint(uuid: str) -> Checkpoint:
    """Also one that was deleted. Raises `CheckpointNotFoundError`."""
    return Tracker().get_checkpoint(uuid)


def iter_trials_metrics(trial_ids: Iterable[int], group: str) -> Iterator[TrialMetrics]:
    """As `Tracker.iter_trials_metrics`."""
    return Tracker().iter_trials_metrics(trial_ids, group)


def stream_trials_training_metrics(trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
    """As `iter_trials_metrics` of the group "training"."""
    return iter_trials_metrics(trial_ids, "training")


def stream_trials_validation_metrics(trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
    """As `iter_trials_metrics` of the group "validation"."""
    return iter_trials_metrics(trial_ids, "validation")


stream_trials_metrics = iter_trials_metrics


def logout() -> None:
    """Does nothing: a home needs no login."""
