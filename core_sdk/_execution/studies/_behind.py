"""Stops trials that are behind the parent of their try at the same step, by more than the noise seen so far."""

from __future__ import annotations

from collections.abc import Iterable

from core_sdk._execution.studies._line import TrialInLine
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, View, open_view
from core_sdk._home.finding.noise import Sample
from core_sdk._home.finding.running import difference_at
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

    Its best value so far is compared with the best values of the parent's trials up to the same step. The noise is
    what the seeds of the study's tries differed by at that step: while that is not known, nothing is behind.
    """
    facts = next(each for each in one.trials if each.row.trial_id == trial_id)
    pair, own = facts.metric_named(tries.metric.name), facts.metric(tries.metric.best_name)
    steps = None if pair is None else view.step_range([trial_id], *pair)
    if own is None or steps is None:
        return ""
    found = difference_at(view, tries, one, Sample((float(own),)), steps[1])
    if found is None or found.mark != "beyond noise":
        return ""
    if found.is_better(smaller_is_better=tries.metric.smaller_is_better):
        return ""
    return f"{BEHIND} {one.row.parent} at step {steps[1]}, beyond noise"
