"""The state of a search, from which it can be drawn: the points and the fate of each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core_sdk._execution.experiments._trial import TrialStateMachine
from core_sdk._execution.experiments.following import Follower
from core_sdk._ground.config.searchers import SearcherConfig
from core_sdk._ground.records import Metric

Fate = Literal["trained to the end", "goes on", "stopped", "canceled", "error"]


@dataclass(frozen=True)
class SearchedTrial:
    trial_id: int
    bracket: int
    fate: Fate
    hparams: Mapping[str, Any]
    best: Metric | None
    """The best value of the searcher's metric."""
    points: Sequence[tuple[float, Metric]]
    """The searcher's metric by length, as the searcher has read it; empty if the searcher reads no lengths."""
    reason: str


@dataclass(frozen=True)
class SearchPicture:
    name: str
    searcher: str
    metric: str
    smaller_is_better: bool
    unit: str
    """The unit of the lengths."""
    rungs: Sequence[int]
    """The lengths at which trials are compared, in any bracket."""
    brackets: Sequence[Sequence[int]]
    """The rungs of each bracket."""
    trials: Sequence[SearchedTrial]
    best_trial: int | None
    warnings: Sequence[str]

    @property
    def reads_lengths(self) -> bool:
        return any(trial.points for trial in self.trials)


def read_picture(follower: Follower) -> SearchPicture:
    """Reads the experiment's new events, and returns the present state of its search."""
    for _ in follower.read():
        pass
    experiment, searcher = follower.experiment, follower.searcher
    rungs = experiment.rung_lengths
    local = follower.home.local_trials(experiment.experiment_id)
    trials = [
        SearchedTrial(
            local(trial.trial_id),
            experiment.bracket_of(trial.request_id),
            _fate(trial, rungs),
            trial.hparams,
            follower.best.get(trial.request_id),
            sorted(follower.points.get(trial.request_id, {}).items()),
            trial.reason,
        )
        for trial in experiment.trials.values()
        if trial.trial_id is not None
    ]
    return SearchPicture(
        follower.name,
        str(searcher.__struct_config__.tag),
        searcher.metric,
        searcher.smaller_is_better,
        _unit(searcher),
        rungs,
        experiment.brackets,
        trials,
        follower.best_trial[0] if follower.best_trial else None,
        list(experiment.warnings),
    )


def _fate(trial: TrialStateMachine, rungs: Sequence[int]) -> Fate:
    if not trial.is_over:
        return "goes on"
    if trial.state != "COMPLETED":
        return "canceled" if trial.state == "CANCELED" else "error"
    return "stopped" if rungs and trial.last_length < rungs[-1] else "trained to the end"


def _unit(searcher: SearcherConfig) -> str:
    time_metric, max_length = getattr(searcher, "time_metric", None), getattr(searcher, "max_length", None)
    return time_metric or (max_length and max_length.unit) or "length"
