"""Decides which checkpoints are kept, by pure rules.

`keep` applies a policy: the union of the best N of the experiment, the best N of each trial, the latest N of each
trial, and the first of each trial in each interval. `protect` names the checkpoints that no policy may delete. All
others may be deleted, after `tracking.deletion.collection` has looked into the storages. These rules complete the
policy:

- "Best" needs a value of the searcher's metric at exactly the checkpoint's `steps_completed`, reported by the attempt
  that stored it: another attempt at the same step measured other weights. `SearcherMetric` says which value is better.
- "Latest" is ranked within each trial, validated or not.
- "First" is ranked by the order in which checkpoints were stored.
- A superseded checkpoint (a later attempt resumed from an earlier step) takes part in no ranking.
- A checkpoint with some files deleted cannot be resumed from: it does not count as latest, but can be the best, or
  the first of an interval.
- Where no metric is known, or no checkpoint of a trial has it, validated checkpoints cannot be compared: a policy that
  asks for the best keeps them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from core_sdk._ground.records import Metric, RetentionPolicy, SearcherMetric

Reasons = dict[str, list[str]]
"""The reasons for which checkpoints are kept, for people, by storage id."""


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that exists according to the records."""

    storage_id: str
    trial_id: int
    validation: Mapping[str, Metric] = field(default_factory=dict)
    """The validation metrics that the attempt that stored it reported at its step; empty if there are none."""
    is_superseded: bool = False
    is_partial: bool = False
    is_pinned: bool = False
    note: str = ""
    """The reason for the pin."""
    is_inherited: bool = False
    steps_completed: int = 0
    hours: float = 0.0
    """The time from the beginning of the trial until it was stored."""


@dataclass(frozen=True)
class References:
    """References to checkpoints from elsewhere in the home, by storage id.

    With the pin and the owner of the checkpoint itself, these are all that a deletion asks the home for (`needs`).
    Processes that read a checkpoint, of this home or of another one, are known to its storage (`Storage.deleting`).
    """

    sources: Mapping[str, Set[int]] = field(default_factory=dict)
    """The trials that began with a checkpoint."""
    beginnings: Mapping[str, Set[int]] = field(default_factory=dict)
    """The submitted experiments whose trials begin with a checkpoint."""
    uses: Mapping[str, Set[int]] = field(default_factory=dict)
    """The trials whose running attempt resumed from a checkpoint or uses it."""
    running: Mapping[int, int] = field(default_factory=dict)
    """The running attempt of each running trial."""
    models: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The versions of models that a checkpoint is registered as, for people."""
    damaged: Mapping[int, str] = field(default_factory=dict)
    """The reason for which a trial's record cannot be read, by trial. The trial's experiment is not known."""
    doubtful: Mapping[int, str] = field(default_factory=dict)
    """The reason for which records of a trial may be missing, by trial. A lost one might be a pin or a validation."""


def keep(candidates: Sequence[Candidate], policy: RetentionPolicy, metric: SearcherMetric | None) -> Reasons:
    """Returns the checkpoints of one experiment that the policy keeps, with the reasons.

    `candidates` are ordered by trial, and within each trial by age, both from old to new.
    """
    reasons: Reasons = defaultdict(list)
    ranked = [candidate for candidate in candidates if not candidate.is_superseded]
    _keep_best(reasons, ranked, policy, metric)
    whole = [candidate for candidate in ranked if not candidate.is_partial]
    for trial_id, of_trial in _by_trial(reversed(whole)).items():
        _note(reasons, of_trial[: policy.save_trial_latest], f"latest {policy.save_trial_latest} of trial {trial_id}")
    if policy.keep_every is not None:
        for of_trial in _by_trial(ranked).values():
            firsts = policy.keep_every.firsts((each.storage_id, each.steps_completed, each.hours) for each in of_trial)
            for storage_id, reason in firsts.items():
                reasons[storage_id].append(reason)
    return dict(reasons)


def _keep_best(
    reasons: Reasons, ranked: Sequence[Candidate], policy: RetentionPolicy, metric: SearcherMetric | None
) -> None:
    comparable = [one for one in ranked if metric is not None and metric.of(one.validation) is not None]
    if metric is not None and comparable:
        best = metric.best_first(comparable, lambda one: metric.of(one.validation))
        _note(reasons, best[: policy.save_experiment_best], f"best {policy.save_experiment_best} of the experiment")
        for trial_id, of_trial in _by_trial(best).items():
            _note(reasons, of_trial[: policy.save_trial_best], f"best {policy.save_trial_best} of trial {trial_id}")
    # Checkpoints without the metric cannot be compared by it.
    unknown = "no metric is known" if metric is None else f"none has the metric {metric.name!r}"
    if policy.save_experiment_best and not comparable:
        _note(reasons, filter(_is_validated, ranked), f"validated, and {unknown} to call it worse")
    elif policy.save_trial_best:
        measured = {candidate.trial_id for candidate in comparable}
        unmeasured = [candidate for candidate in ranked if candidate.trial_id not in measured]
        _note(reasons, filter(_is_validated, unmeasured), f"validated, and {unknown} to call it worse")


def protect(candidates: Iterable[Candidate], references: References) -> Reasons:
    """Returns the checkpoints that no policy may delete, with the reasons."""
    reasons = {candidate.storage_id: _protections(candidate, references) for candidate in candidates}
    return {storage_id: found for storage_id, found in reasons.items() if found}


def needs(storage_id: str, references: References, pin: str | None, *, is_inherited: bool) -> list[str]:
    """Returns descriptions, for people, of all for which nobody may delete the checkpoint without force.

    `pin` is the note of its pin, or None.
    """
    return [
        *([] if pin is None else [pin_reason(pin)]),
        *references_to(storage_id, references),
        *([INHERITED] if is_inherited else []),
    ]


def references_to(storage_id: str, references: References) -> list[str]:
    """Returns descriptions, for people, of what in the home needs the checkpoint."""
    users = sorted(references.uses.get(storage_id, ()))
    sources = sorted(references.sources.get(storage_id, ()))
    beginnings = sorted(references.beginnings.get(storage_id, ()))
    return [
        *(f"used by the running trial {trial_id}" for trial_id in users),
        *(f"it is {version}" for version in references.models.get(storage_id, ())),
        *(f"trial {trial_id} began with it" for trial_id in sources),
        *(f"experiment {experiment_id} begins with it" for experiment_id in beginnings),
    ]


INHERITED = (
    "it lies outside this home, and was stored before this home was copied, moved or restored, or in another one: it "
    "may belong to another home (`core-sdk home adopt` if this home was moved)"
)


def pin_reason(note: str) -> str:
    return f"pinned: {note}" if note else "pinned"


def in_order_of_trust(of_trial: Sequence[Candidate]) -> list[Candidate]:
    """Returns the checkpoints of a trial that can be resumed from, in the order in which a resume tries them.

    Superseded checkpoints come last.
    """
    whole = [candidate for candidate in reversed(of_trial) if not candidate.is_partial]
    return sorted(whole, key=lambda candidate: candidate.is_superseded)


def _protections(candidate: Candidate, references: References) -> list[str]:
    pin = candidate.note if candidate.is_pinned else None
    reasons = needs(candidate.storage_id, references, pin, is_inherited=candidate.is_inherited)
    if candidate.trial_id in references.running:
        attempt = references.running[candidate.trial_id]
        reasons.append(f"attempt {attempt} of trial {candidate.trial_id} is running")
    if candidate.trial_id in references.doubtful:
        reasons.append(references.doubtful[candidate.trial_id])
    return reasons


def _by_trial(candidates: Iterable[Candidate]) -> dict[int, list[Candidate]]:
    trials: defaultdict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        trials[candidate.trial_id].append(candidate)
    return trials


def _is_validated(candidate: Candidate) -> bool:
    return bool(candidate.validation)


def _note(reasons: Reasons, candidates: Iterable[Candidate], reason: str) -> None:
    for candidate in candidates:
        reasons[candidate.storage_id].append(reason)
