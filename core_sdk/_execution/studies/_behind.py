"""Stops trials that are behind the parent of their try at the same step, by more than the noise seen so far."""

from __future__ import annotations

from collections.abc import Iterable

from core_sdk._execution.studies._line import TrialInLine
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, View, open_view
from core_sdk._home.finding.noise import Sample, difference
from core_sdk._home.finding.tries import Tries, Try, read_tries, study_of

BEHIND = "behind its parent"
"""The beginning of the reason of such a stop."""


def stop_those_behind(home: Home, line: Iterable[TrialInLine]) -> None:
    """Asks those of the running trials to stop that are behind, if they were begun so."""
    chosen = [each for each in line if each.is_started and each.is_stopped_if_behind]
    if not chosen:
        return
    with open_view(home) as view:
        studies: dict[int, Tries] = {}
        for each in chosen:
            experiment_id, study = study_of(home, each.trial_id)
            if experiment_id not in studies:
                studies[experiment_id] = read_tries(view, experiment_id, SearcherMetric.named(study.best_by))
            tries = studies[experiment_id]
            told = behind(view, tries, tries.of_trial(each.trial_id), each.trial_id)
            folder = home.folder(each.trial_id)
            attempt = folder.running_attempt()
            if told and attempt is not None and folder.read_stop_request(attempt) is None:
                folder.request_stop(attempt, told)


def behind(view: View, tries: Tries, one: Try, trial_id: int) -> str:
    """Returns why a trial is behind; empty if it is not.

    Its best value so far is compared with the best values of the parent's trials up to the same step.
    """
    parent, metric = tries.parent_of(one), tries.metric
    facts = next(each for each in one.trials if each.row.trial_id == trial_id)
    pair = facts.metric_named(metric.name)
    if parent is None or pair is None:
        return ""
    own = facts.metric(metric.best_name)
    steps = view.step_range([trial_id], *pair)
    if own is None or steps is None or tries.pooled is None:
        return ""
    values = [best_until(view, each.row.trial_id, pair, metric, steps[1]) for each in parent.trials]
    known = tuple(value for value in values if value is not None)
    if not known:
        return ""
    found = difference(Sample((float(own),)), Sample(known), tries.pooled)
    if found.mark != "beyond noise" or found.is_better(smaller_is_better=metric.smaller_is_better):
        return ""
    return f"{BEHIND} {parent.try_id} at step {steps[1]}, beyond noise"


def best_until(
    view: View, trial_id: int, pair: tuple[str, str], metric: SearcherMetric, last_step: int
) -> float | None:
    """Returns the best finite value that a trial had reported up to a step; None if it had none."""
    ends = view.step_range([trial_id], *pair)
    if ends is None or ends[0] > last_step:
        return None
    within = ends[0], min(ends[1], last_step)
    bins = view.bins(trial_id, *pair, max(1, within[1] - within[0] + 1), within=within)
    return next(iter(metric.best_first([*bins.minima, *bins.maxima], float)), None)
