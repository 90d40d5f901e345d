"""The questions to a `Tracker`, asked of the home of this process's environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core_sdk.client._checkpoint import Checkpoint
from core_sdk.client._experiment import Experiment
from core_sdk.client._metrics import TrialMetrics
from core_sdk.client._order import ExperimentSortBy, ExperimentState, OrderBy
from core_sdk.client._tracker import Tracker
from core_sdk.client._trial import Trial

# Each call makes its own `Tracker`, which opens nothing: a home that changes in between is simply the next one's.


def list_experiments(
    sort_by: ExperimentSortBy | None = None,
    order_by: OrderBy | None = None,
    experiment_ids: Iterable[int] | None = None,
    labels: Iterable[str] | None = None,
    *,
    states: Iterable[ExperimentState] | None = None,
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


def login(
    master: str | None = None,
    user: str | None = None,
    password: str | None = None,
    cert_path: str | None = None,
    cert_name: str | None = None,
    noverify: bool = False,
) -> None:
    """Without arguments: nothing, for a home needs no login. With any: `ValueError`, for there is no master here."""
    given = {
        "master": master,
        "user": user,
        "password": password,
        "cert_path": cert_path,
        "cert_name": cert_name,
        "noverify": noverify or None,
    }
    names = ", ".join(name for name, value in given.items() if value is not None)
    if names:
        raise ValueError(
            f"login() was given {names}, but there is no master to log in to: records are read from the home "
            f"{Tracker().home.root}. Leave login() out, and choose another home with CORE_SDK_HOME."
        )
