"""A search by Optuna: any of its samplers chooses hyperparameters, any of its pruners stops trials."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import cloudpickle

from core_sdk._ground.config import from_mapping
from core_sdk._ground.config.hyperparameters import (
    Categorical,
    Const,
    Double,
    Hyperparameter,
    HyperparameterSpace,
    Int,
    Log,
    nested,
)
from core_sdk.errors import MissingDependencyError
from core_sdk.search._custom import SearcherState, SearchMethod
from core_sdk.search._events import ExitedReason
from core_sdk.search._method import MIN_REPLACEMENTS
from core_sdk.search._operations import Close, Create, Operation, Shutdown, Stop, ValidateAfter

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState
except ModuleNotFoundError as error:
    raise MissingDependencyError("Optuna", "optuna", "core_sdk.search.optuna") from error

_STUDY_FILE = "study.pickle"


@dataclass
class _Open:
    """A trial that has not ended."""

    trial: optuna.Trial
    metric: float = math.nan
    """The last metric that was reported."""


class OptunaSearch(SearchMethod):
    """Asks an Optuna study for the hyperparameters of trials, tells it their metrics, and prunes as it says.

    With `max_length`, trials are trained by `searcher.operations()` from one `period` to the next, until `max_length`.
    Without it they train as their scripts want. Each report may prune a trial.

    The study is kept in memory, and saved after every event with the states of its sampler and its pruner. A search
    that was killed therefore continues with the decisions that it would have made. The file is a pickle: load only
    files that you trust.
    """

    def __init__(
        self,
        hyperparameters: HyperparameterSpace | Mapping[str, Any],
        *,
        max_trials: int,
        max_concurrent_trials: int = 16,
        smaller_is_better: bool = True,
        max_length: int | None = None,
        period: int | None = None,
        sampler: optuna.samplers.BaseSampler | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
        seed: int = 0,
    ) -> None:
        """`hyperparameters` are written as in a configuration. `sampler` defaults to TPE, `pruner` to none."""
        if not isinstance(hyperparameters, HyperparameterSpace):
            hyperparameters = _space_of(hyperparameters)
        self._leaves = {".".join(path): (path, leaf) for path, leaf in hyperparameters.leaves()}
        self._max_trials = max_trials
        self._max_concurrent = max_concurrent_trials or max_trials
        self._max_length = max_length
        self._period = period or max_length
        self._seed = seed
        self._open: dict[UUID, _Open] = {}
        self._num_invalid = 0
        self.study = optuna.create_study(
            sampler=sampler or optuna.samplers.TPESampler(seed=seed),
            pruner=pruner or optuna.pruners.NopPruner(),
            direction="minimize" if smaller_is_better else "maximize",
        )

    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]:
        return list(self._fill())

    def on_trial_created(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        return []

    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: UUID, metric: Any, train_length: int
    ) -> list[Operation]:
        trial = self._open[request_id]
        trial.metric = float(metric) if isinstance(metric, int | float) else math.nan
        trial.trial.report(trial.metric, step=train_length)
        if trial.trial.should_prune():
            self.study.tell(trial.trial, state=TrialState.PRUNED)
            return [Stop(request_id)]
        if self._max_length is None or self._period is None:
            return []
        if train_length >= self._max_length:
            return [Close(request_id)]
        return [ValidateAfter(request_id, min(train_length + self._period, self._max_length))]

    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: UUID, exited_reason: ExitedReason
    ) -> list[Operation]:
        self._num_invalid += exited_reason is ExitedReason.INVALID_HP
        self.study.tell(self._open[request_id].trial, state=TrialState.FAIL, skip_if_finished=True)
        return []

    def on_trial_closed(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        trial = self._open.pop(request_id)
        is_number = math.isfinite(trial.metric)
        state = TrialState.COMPLETE if is_number else TrialState.FAIL
        self.study.tell(trial.trial, trial.metric if is_number else None, state, skip_if_finished=True)
        operations = list(self._fill())
        if not self._open:
            operations.append(Shutdown(failure=all(one.state is TrialState.FAIL for one in self._told())))
        return operations

    def progress(self, searcher_state: SearcherState) -> float:
        return min((len(self._told()) - len(self._open) - self._num_invalid) / self._max_trials, 1.0)

    def save_method_state(self, path: Path) -> None:
        (path / _STUDY_FILE).write_bytes(cloudpickle.dumps((self.study, self._open, self._num_invalid)))

    def load_method_state(self, path: Path) -> None:
        self.study, self._open, self._num_invalid = cloudpickle.loads((path / _STUDY_FILE).read_bytes())

    def _told(self) -> list[optuna.trial.FrozenTrial]:
        trials: list[optuna.trial.FrozenTrial] = self.study.get_trials(deepcopy=False)
        return trials

    def _fill(self) -> Iterator[Operation]:
        num_allowed = self._max_trials + min(self._num_invalid, max(MIN_REPLACEMENTS, self._max_trials))
        while len(self._open) < self._max_concurrent and len(self._told()) < num_allowed:
            yield from self._create()

    def _create(self) -> Iterator[Operation]:
        distributions = {name: distribution_of(leaf) for name, (_, leaf) in self._leaves.items()}
        trial = self.study.ask({name: one for name, one in distributions.items() if one is not None})
        request_id = UUID(int=random.Random(f"{self._seed} {trial.number}").getrandbits(128), version=4)
        self._open[request_id] = _Open(trial)
        yield Create(request_id, nested(self._values(trial.params)))
        if self._period is not None:
            yield ValidateAfter(request_id, self._period)

    def _values(self, params: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, (path, leaf) in self._leaves.items():
            match leaf:
                case Const():
                    yield path, leaf.val
                case Categorical():
                    yield path, leaf.vals[params[name]]
                case _:
                    yield path, params[name]


def distribution_of(leaf: Hyperparameter) -> BaseDistribution | None:
    """Returns the distribution of a hyperparameter, or of the index of a categorical one; for a constant, None."""
    match leaf:
        case Const():
            return None
        case Categorical():
            return CategoricalDistribution(range(len(leaf.vals)))
        case Int():
            return IntDistribution(leaf.minval, leaf.maxval)
        case Double():
            return FloatDistribution(leaf.minval, leaf.maxval)
        case Log():
            low, high = sorted((leaf.base**leaf.minval, leaf.base**leaf.maxval))
            return FloatDistribution(low, high, log=True)


def _space_of(hyperparameters: Mapping[str, Any]) -> HyperparameterSpace:
    """Returns the space that a configuration's `hyperparameters` describe. Raises `InvalidConfigError`."""
    others = {"entrypoint": "true", "searcher": {"name": "random", "metric": "unused", "max_trials": 1}}
    return from_mapping({**others, "hyperparameters": hyperparameters}, is_new=True).config.hyperparameters
