"""The tries of a study: trials of the same code and hyperparameters that differ only in their seeds."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from core_sdk._ground.records import SearcherMetric, StudyRecord
from core_sdk._home.finding.facts import Facts, read_facts
from core_sdk._home.finding.noise import MeanDifference, Pooled, Sample, difference, pooled_spread
from core_sdk._home.folders import Home
from core_sdk._home.rows import TrialRow
from core_sdk._home.view import View
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError, TrialNotFoundError

TryState = Literal["queued", "running", "ended", "failed", "stopped"]

TIME_LIMIT = "its time limit of "
"""The beginning of the reason of a trial that has used up its time: it has ended as the study says."""


@dataclass(frozen=True)
class Try:
    """The trials of one try, in the order of their ids."""

    trials: Sequence[Facts]
    metric: SearcherMetric

    @property
    def row(self) -> TrialRow:
        """The first trial, which says what is tried, and what was decided."""
        return self.trials[0].row

    @property
    def try_id(self) -> int:
        return self.row.trial_id if self.row.try_id is None else self.row.try_id

    @property
    def num_missing(self) -> int:
        """The number of trials that it was to have, and has not."""
        return max(0, max(one.row.num_seeds for one in self.trials) - len(self.trials))

    @property
    def state(self) -> TryState:
        states = {one.row.state for one in self.trials}
        if "ACTIVE" in states:
            return "running"
        if "QUEUED" in states:
            return "queued"
        if "ERROR" in states:
            return "failed"
        return "ended" if all(map(has_value_of_end, self.trials)) else "stopped"

    def has_trial(self, trial_id: int) -> bool:
        return any(each.row.trial_id == trial_id for each in self.trials)

    @property
    def has_ended(self) -> bool:
        return self.state not in ("queued", "running")

    @cached_property
    def sample(self) -> Sample | None:
        """The best values of the trials that have ended well; None if there is none."""
        return Sample(tuple(self.by_seed.values())) if self.by_seed else None

    @cached_property
    def by_seed(self) -> Mapping[int, float]:
        """The finite best value of each trial that has ended well, by its seed."""
        found = {one.row.seed: value_of(one, self.metric) for one in self.trials if has_value_of_end(one)}
        return {seed: value for seed, value in found.items() if value is not None and math.isfinite(value)}

    @property
    def reason(self) -> str:
        """Why the first of its trials that has not ended well has not."""
        return next((one.row.reason for one in self.trials if one.row.state != "COMPLETED" and one.row.reason), "")


@dataclass(frozen=True)
class Tries:
    """All tries of a study."""

    by_id: Mapping[int, Try]
    metric: SearcherMetric

    @cached_property
    def pooled(self) -> Pooled | None:
        return pooled_spread(one.sample for one in self.by_id.values() if one.sample is not None)

    @cached_property
    def by_value(self) -> Mapping[tuple[int, float], Sequence[Try]]:
        """The tries that have a value with a seed, in their order."""
        found = defaultdict(list)
        for one in self.by_id.values():
            for pair in one.by_seed.items():
                found[pair].append(one)
        return found

    def of_trial(self, trial_id: int) -> Try:
        """Returns the try to which a trial belongs. Raises `StopIteration` if it belongs to none."""
        return next(one for one in self.by_id.values() if one.has_trial(trial_id))

    def parent_of(self, one: Try) -> Try | None:
        return None if one.row.parent is None else self.by_id.get(one.row.parent)

    def to_parent(self, one: Try) -> MeanDifference | None:
        """Returns the difference of a try to its parent; None if one of them has no value."""
        parent = self.parent_of(one)
        if parent is None or one.sample is None or parent.sample is None:
            return None
        return difference(one.sample, parent.sample, self.pooled)

    @property
    def best(self) -> Try | None:
        """The try with the best mean, among those that nobody has discarded and whose trials have not failed."""
        known = [one for one in self.by_id.values() if one.sample is not None and one.state == "ended"]
        wanted = [one for one in known if one.row.verdict != "discard"] or known
        means = {one.try_id: one.sample.mean for one in wanted if one.sample is not None}
        return next((self.by_id[each] for each in self.metric.best_first(means, means.get)), None)

    def line_of(self, one: Try | None) -> list[Try]:
        """Returns a try with all from which it was varied, the first one first."""
        found: list[Try] = []
        while one is not None and one not in found:
            found.insert(0, one)
            one = self.parent_of(one)
        return found


def read_tries(view: View, experiment_id: int, metric: SearcherMetric) -> Tries:
    return tries_of(read_facts(view, view.trials(experiment_id)), metric)


def tries_of(found: Iterable[Facts], metric: SearcherMetric) -> Tries:
    """Groups the trials of a study; those that belong to no try are left out."""
    members = defaultdict(list)
    for one in sorted(found, key=lambda one: one.row.trial_id):
        if one.row.try_id is not None:
            members[one.row.try_id].append(one)
    return Tries({try_id: Try(trials, metric) for try_id, trials in members.items()}, metric)


def has_value_of_end(one: Facts) -> bool:
    """Returns whether a trial has ended as its study says: by itself, or since its time was over."""
    row = one.row
    is_over = row.state in ("PAUSED", "CANCELED") and row.reason.startswith(TIME_LIMIT)
    return row.state == "COMPLETED" or is_over


def value_of(one: Facts, metric: SearcherMetric) -> float | None:
    """Returns the best value of a trial; None if it has not reported the metric."""
    value = one.metric(metric.best_name)
    return None if value is None else float(value)


def study_here(home: Home, directory: str) -> int | None:
    """Returns the study of a directory: that of the nearest directory above, the newest; None if there is none."""
    found = []
    for experiment_id in home.experiment_ids():
        study = None
        with contextlib.suppress(ExperimentNotFoundError, RecordDamagedError):  # another one is damaged
            study = home.experiment(experiment_id).read().study
        if study is not None and f"{directory}/".startswith(f"{study.directory.rstrip('/')}/"):
            found.append((len(study.directory), experiment_id))
    return max(found)[1] if found else None


def study_of(home: Home, trial_id: int) -> tuple[int, StudyRecord]:
    """Returns the study of a trial of a try. Raises `TrialNotFoundError` if it is none."""
    record = home.trial(trial_id).read_record()
    study = home.experiment(record.experiment_id).read().study
    if study is None or record.try_id is None:
        raise TrialNotFoundError(trial_id, home.root)
    return record.experiment_id, study
