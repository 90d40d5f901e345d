"""Experiments, trials and checkpoints as objects that lead to one another."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from core_sdk._execution.experiments.reviving import keep_going
from core_sdk._ground.records import Metric
from core_sdk._home import open_view
from core_sdk._home.rows import CheckpointRow, ExperimentRow, TrialRow
from core_sdk.client._notebook import Shown
from core_sdk.client._orders.checkpoints import Scope, list_checkpoints, top_checkpoints
from core_sdk.client._orders.order import GOING_ON, CheckpointSortBy, OrderBy, TrainingState, TrialSortBy
from core_sdk.client._orders.trials import list_trials
from core_sdk.client._steered.checkpoint import SteeredCheckpoint
from core_sdk.client._steered.experiment import SteeredExperiment
from core_sdk.client._steered.trial import SteeredTrial, hparams_of
from core_sdk.errors import ExperimentError, PausedError

if TYPE_CHECKING:
    from core_sdk._analysis.charts.picture import Picture

_Row = TypeVar("_Row", TrialRow, ExperimentRow)


@dataclass(frozen=True)
class CheckpointTraining:
    """The training that stored a checkpoint."""

    experiment_config: dict[str, Any]
    """The value of `Experiment.config`."""
    experiment_id: int
    trial_id: int
    hparams: dict[str, Any]
    validation_metrics: dict[str, dict[str, Metric]]
    """The metrics of the group "validation" that the same attempt reported at the checkpoint's step.

    They are the value of the key "avgMetrics". Empty if it reported none.
    """


class Checkpoint(SteeredCheckpoint):
    """A checkpoint as it was when it was looked up. `reload` looks it up again."""

    @property
    def training(self) -> CheckpointTraining:
        with open_view(self._home) as view:
            hparams = hparams_of(self._home, view.trial(self.trial_id))
            metrics = view.checkpoint(self.uuid).metrics
        return CheckpointTraining(
            experiment_config=self.get_experiment().config,
            experiment_id=self.experiment_id,
            trial_id=self.trial_id,
            hparams=hparams,
            validation_metrics={"avgMetrics": metrics} if metrics else {},
        )

    def get_trial(self) -> Trial:
        with open_view(self._home) as view:
            return Trial(self._home, view.trial(self.trial_id))

    def get_experiment(self) -> Experiment:
        with open_view(self._home) as view:
            return Experiment(self._home, view.experiment(self.experiment_id))


class Training(Shown[_Row]):
    """The base of trials and experiments, which have checkpoints to choose from and an end to wait for."""

    _scope: Scope
    _go_on_command: str
    """The command that continues it when it is paused."""
    state: TrainingState

    @abstractmethod
    def plot(self) -> Picture:
        """Draws charts of the metrics, which a notebook shows."""

    def _picture(self) -> Picture:
        return self.plot()

    def _is_going_on(self) -> bool:
        return self.state in GOING_ON

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy | str | None = None,
        order_by: OrderBy | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """Lists the checkpoints that exist.

        By default, the best comes first if the experiment has a searcher metric, else the newest. Give both `sort_by`
        and `order_by`, or neither. A string in `sort_by` names a validation metric; checkpoints without it, or with
        NaN, come last. Raises `ValueError` for a metric that no trial has reported.
        """
        rows = list_checkpoints(self._home, self._scope, sort_by, order_by, max_results)
        return [Checkpoint(self._home, row) for row in rows]

    def top_checkpoint(self, sort_by: str | None = None, smaller_is_better: bool | None = None) -> Checkpoint:
        """Finds the best checkpoint by the validation metric `sort_by`, by default the experiment's searcher metric.

        That is the checkpoint with the best value that its own attempt reported at its step. Raises `ValueError` if no
        checkpoint has a value, or if it is not known which metric counts, or whether smaller values of it are better.
        """
        return Checkpoint(self._home, top_checkpoints(self._home, self._scope, sort_by, smaller_is_better)[0])

    def wait(self, interval: float = 5.0) -> TrainingState:
        """Blocks until the end, and returns the final state. Checks every `interval` seconds.

        An experiment that was not submitted has ended when none of its trials is active, even before its first trial.
        Raises `PausedError` if it is paused.
        """
        self.reload()
        while self.state in GOING_ON:
            self._keep_going()
            time.sleep(interval)
            self.reload()
        if self.state is TrainingState.PAUSED:
            raise PausedError(str(self._scope), self._go_on_command)
        return self.state

    def _keep_going(self) -> None:
        """Starts a master if none runs and the experiment needs one."""
        keep_going(self._home, self._scope.experiment_id)


class Trial(SteeredTrial, Training[TrialRow]):
    """A trial as it was when it was looked up. `reload` looks it up again."""

    _go_on_command = "core-sdk trial resume"

    def get_experiment(self) -> Experiment:
        with open_view(self._home) as view:
            return Experiment(self._home, view.experiment(self.experiment_id))

    get_checkpoints = Training.list_checkpoints

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """Finds the latest checkpoint, the best one (see `top_checkpoint`), or the one with this `uuid`.

        Give exactly one of the three. Raises `ValueError` or `CheckpointNotFoundError`.
        """
        if [latest, best, uuid is not None].count(True) != 1:
            raise ValueError("give exactly one of latest, best and uuid")
        if uuid is not None:
            with open_view(self._home) as view:
                return Checkpoint(self._home, view.checkpoint(uuid))
        if best:
            return self.top_checkpoint(sort_by, smaller_is_better)
        newest = self.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESC, 1)
        if not newest:
            raise ValueError(f"trial {self.trial_id} has no checkpoint")
        return newest[0]


class Experiment(SteeredExperiment, Training[ExperimentRow]):
    """An experiment as it was when it was looked up. `reload` looks it up again."""

    _go_on_command = "core-sdk experiment activate"

    def list_trials(self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC) -> list[Trial]:
        """Lists the trials. Trials without a value to sort by come last, such as running trials if sorted by end."""
        return list(self.iter_trials(sort_by, order_by))

    def iter_trials(
        self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASC, limit: int | None = None
    ) -> Iterator[Trial]:
        """Yields the first `limit` trials of `list_trials`."""
        rows = list_trials(self._home, self.id, sort_by, order_by, limit)
        return (Trial(self._home, row) for row in rows)

    get_trials = list_trials

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """Blocks until there is a trial, and returns the one with the lowest id. Checks every `interval` seconds.

        Raises `ExperimentError` if the experiment has ended without one.
        """
        while not (trials := self.list_trials()):
            self.reload()
            if self._search is not None and self._search.has_ended:
                raise ExperimentError.of(self.id, f"has ended without a trial: it is {self._search.state}")
            self._keep_going()
            time.sleep(interval)
        return trials[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> list[Checkpoint]:
        """Finds the best checkpoint of each of the `limit` best trials, the best first; see `top_checkpoint`."""
        found = top_checkpoints(self._home, self._scope, sort_by, smaller_is_better)
        best: dict[int, CheckpointRow] = {}
        for row in found:
            best.setdefault(row.trial_id, row)
        return [Checkpoint(self._home, row) for row in list(best.values())[:limit]]
