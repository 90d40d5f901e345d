"""Compares tries that still run with their parents at the same step, and says how long they take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from core_sdk._ground.records import SearcherMetric
from core_sdk._home.finding.facts import Facts
from core_sdk._home.finding.noise import MeanDifference, Pooled, Sample, difference, pooled_spread
from core_sdk._home.finding.tries import Tries, Try, has_value_of_end
from core_sdk._home.view import View

_MOST_POOLED = 20
"""The number of tries, the newest ones, whose spread at a step is read: that takes time for each."""


@dataclass(frozen=True)
class Running:
    """A try that has not ended, as far as it has come."""

    step: int | None = None
    """The last step that all of its trials have reached which have reported the metric; None if none has."""
    sample: Sample | None = None
    """The best values of its trials up to that step."""
    to_parent: MeanDifference | None = None
    """The difference to the parent's trials at the same step."""
    progress: float | None = None
    """The share of its trials' work that is done; None if that is not known."""
    remaining_s: float | None = None
    """The time until the last of the trials ends that run now; None if that is not known."""


def read_running(view: View, tries: Tries, one: Try, budget_s: float | None) -> Running:
    """Reads how far a try has come, and how it stands against its parent at the same step."""
    spent = {row.trial_id: row.attempts_ms / 1000 for row in view.times(trial_ids=_ids(one))}
    usual = _usual_steps(tries, one)
    shares = {each.row.trial_id: share_done(each, usual) for each in one.trials}
    left = [
        time_left(spent.get(each.row.trial_id, 0.0), shares[each.row.trial_id], budget_s)
        for each in one.trials
        if each.row.state == "ACTIVE"
    ]
    known_left = [each for each in left if each is not None]
    known_shares = [each for each in shares.values() if each is not None]
    telling = [each for each in one.trials if each.row.state == "ACTIVE" or has_value_of_end(each)]
    step = _last_common_step(view, tries.metric, telling)
    sample = None if step is None else sample_until(view, telling, tries.metric, step)
    return Running(
        step=step,
        sample=sample,
        to_parent=None if step is None or sample is None else difference_at(view, tries, one, sample, step),
        progress=fmean(known_shares) if len(known_shares) == len(shares) else None,
        remaining_s=max(known_left) if known_left and len(known_left) == len(left) else None,
    )


def difference_at(view: View, tries: Tries, one: Try, sample: Sample, step: int) -> MeanDifference | None:
    """Returns the difference of values of a try at a step to its parent's up to the same step.

    The noise is the spread of the seeds that the study's newest tries had at that step. Returns None if the try has no
    parent, or that had no value by then.
    """
    parent = tries.parent_of(one)
    before = None if parent is None else sample_until(view, parent.trials, tries.metric, step)
    if parent is None or before is None:
        return None
    return difference(sample, before, _pooled_at(view, tries, [one, parent], step))


def share_done(trial: Facts, usual_steps: int | None) -> float | None:
    """Returns the share of a trial's work that is done: what it says itself, or else its steps among the usual ones."""
    row = trial.row
    if row.state == "QUEUED":
        return 0.0
    if row.state != "ACTIVE":
        return 1.0
    if row.progress is not None:
        return min(1.0, row.progress)
    return min(1.0, row.steps_completed / usual_steps) if usual_steps else None


def time_left(spent_s: float, share: float | None, budget_s: float | None) -> float | None:
    """Returns how long a trial still runs, at its pace so far, and within its budget; None if neither is known."""
    by_pace = spent_s * (1 - share) / share if share else None
    by_budget = None if budget_s is None else max(0.0, budget_s - spent_s)
    known = [each for each in (by_pace, by_budget) if each is not None]
    return min(known) if known else None


def sample_until(view: View, trials: Iterable[Facts], metric: SearcherMetric, last_step: int) -> Sample | None:
    """Returns the best finite values that trials had reported up to a step; None if none had any."""
    values = (best_until(view, each, metric, last_step) for each in trials)
    known = tuple(value for value in values if value is not None)
    return Sample(known) if known else None


def best_until(view: View, trial: Facts, metric: SearcherMetric, last_step: int) -> float | None:
    """Returns the best finite value that a trial had reported up to a step; None if it had none."""
    ends, pair = _step_range(view, trial, metric), trial.metric_named(metric.name)
    if ends is None or pair is None or ends[0] > last_step:
        return None
    if ends[1] <= last_step:
        value = trial.metric(metric.best_name)
        return None if value is None else float(value)
    bins = view.bins(trial.row.trial_id, *pair, last_step - ends[0] + 1, within=(ends[0], last_step))
    return next(iter(metric.best_first([*bins.minima, *bins.maxima], float)), None)


def _pooled_at(view: View, tries: Tries, first: list[Try], step: int) -> Pooled | None:
    several = [one for one in reversed(list(tries.by_id.values())) if len(one.trials) > 1]
    chosen = list({one.try_id: one for one in [*first, *several]}.values())[:_MOST_POOLED]
    samples = (sample_until(view, one.trials, tries.metric, step) for one in chosen)
    return pooled_spread(sample for sample in samples if sample is not None)


def _last_common_step(view: View, metric: SearcherMetric, trials: Iterable[Facts]) -> int | None:
    ends = (_step_range(view, each, metric) for each in trials)
    return min((found[1] for found in ends if found is not None), default=None)


def _step_range(view: View, trial: Facts, metric: SearcherMetric) -> tuple[int, int] | None:
    pair = trial.metric_named(metric.name)
    return None if pair is None else view.step_range([trial.row.trial_id], *pair)


def _usual_steps(tries: Tries, one: Try) -> int | None:
    """Returns the steps of the trials of this try, or else of its parent, that have completed."""
    parent = tries.parent_of(one)
    for each in (one, parent):
        steps = [trial.row.steps_completed for trial in each.trials if trial.row.state == "COMPLETED"] if each else []
        if steps:
            return max(steps)
    return None


def _ids(one: Try) -> list[int]:
    return [each.row.trial_id for each in one.trials]
