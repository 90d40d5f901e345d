"""Watches whether trials report what the searcher reads, and tells people if they do not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from core_sdk._execution.experiments._trial import TrialStateMachine
from core_sdk._ground.config import ExperimentConfig
from core_sdk._ground.config.searchers import Searcher
from core_sdk._ground.records import ValidationRead

_MAX_NAMED = 5


class ReportedNames:
    """The names that the trials of an experiment have reported, besides the names that its searcher reads."""

    def __init__(self, searcher: Searcher) -> None:
        self._metric = searcher.metric
        self._time_metric: str | None = getattr(searcher, "time_metric", None)
        self.has_metric = False
        """Whether any trial has reported all that the searcher reads."""
        self._others: set[str] = set()
        """The names of metrics that trials have reported instead."""

    @property
    def lacks_metric(self) -> bool:
        """Whether trials have reported other names only."""
        return bool(self._others) and not self.has_metric

    @property
    def words(self) -> str:
        """A sentence that names what no trial has reported, and what they have reported instead."""
        what = f"metric, {self._metric!r}"
        if self._lacks_time(self._others):
            what = f"time metric, {self._time_metric!r}"
        return f"no trial has reported the searcher's {what}, only {', '.join(sorted(self._others))}"

    def note(self, event: ValidationRead, *, is_counted: bool) -> None:
        """Notes a report, which the searcher counts or not."""
        is_whole = event.metric is not None and not event.names
        self.has_metric |= is_whole or (not is_counted and self._metric in event.names)
        self._others.update(event.names)

    def is_news(self, metrics: Mapping[str, Any]) -> bool:
        """Returns whether a report that the search does not count tells if trials report its metric at all."""
        return not self.has_metric and (self._metric in metrics or not self._others)

    def warnings(self, trials: Sequence[TrialStateMachine]) -> Iterator[str]:
        """Yields the warning that names the trials which have never reported what the searcher reads.

        Once a trial has reported it, others that still run may only be late.
        """
        lacking = [trial for trial in trials if trial.other_names and not trial.has_metric]
        silent = [trial for trial in lacking if trial.is_over or not self.has_metric]
        if not silent:
            return
        who = f"{_named(silent)} {'has' if len(silent) == 1 else 'have'}"
        missing = self._time_metric if self._lacks_time(silent[0].other_names) else self._metric
        others = ", ".join(silent[0].other_names)
        yield (
            f"{who} reported {others}, but never a number for {missing!r}, which the searcher reads. Report it with "
            "the validation metrics, or correct the name in the searcher's configuration."
        )

    def _lacks_time(self, names: Collection[str]) -> bool:
        return self._metric in names and self._time_metric not in (None, *names)


def warnings_of_deaf(trials: Sequence[TrialStateMachine], config: ExperimentConfig) -> Iterator[str]:
    """Yields the warning that names the trials which have trained on after a stop."""
    if deaf := [trial for trial in trials if trial.ignored_stop]:
        yield (
            f"{_named(deaf)} trained on after a stop was asked for ({deaf[0].ignored_stop}). A script should end "
            "once should_preempt() is True; one that does not is killed after the preemption_timeout, "
            f"{config.preemption_timeout} s."
        )


def _named(trials: Sequence[TrialStateMachine]) -> str:
    ids = [str(trial.trial_id) for trial in trials]
    ids[_MAX_NAMED:] = [f"{len(ids) - _MAX_NAMED} more"] if len(ids) > _MAX_NAMED else []
    return f"trial {ids[0]}" if len(ids) == 1 else f"trials {', '.join(ids[:-1])} and {ids[-1]}"
