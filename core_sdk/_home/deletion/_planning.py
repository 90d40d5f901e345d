"""Applies the rules to an experiment's journals and storages, and decides which of its checkpoints are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from core_sdk._ground.records import RetentionPolicy, SearcherMetric
from core_sdk._home.checkpoints import RecordedCheckpoint
from core_sdk._home.deletion._inspection import Inspector
from core_sdk._home.deletion.retention import (
    Candidate,
    Reasons,
    References,
    in_order_of_trust,
    keep,
    protect,
    references_to,
)
from core_sdk._home.history import TrialHistory, UnlistedCheckpoint


@dataclass(frozen=True)
class Rules:
    policy: RetentionPolicy
    metric: SearcherMetric | None


@dataclass(frozen=True)
class Verdict:
    """The decision about one checkpoint, with its reasons."""

    storage_id: str
    trial_id: int
    experiment_id: int
    steps_completed: int | None
    """The checkpoint's step; None if the journals do not list the checkpoint."""
    size_bytes: int
    storage: str
    is_kept: bool
    reasons: tuple[str, ...]


class ExperimentPlan:
    """Decides about the checkpoints of the trials in `scope`. All trials of the experiment take part in rankings."""

    def __init__(
        self,
        experiment_id: int,
        rules: Rules,
        histories: dict[int, TrialHistory],
        references: References,
        scope: Collection[int],
        inspector: Inspector,
    ) -> None:
        self._experiment_id = experiment_id
        self._rules = rules
        self._histories = histories
        doubtful = {trial: history.problem for trial, history in histories.items() if history.problem is not None}
        self._references = dataclasses.replace(references, doubtful=doubtful)
        self._scope = scope
        self._inspector = inspector
        self._recorded = {
            checkpoint.record.storage_id: (trial_id, checkpoint)
            for trial_id, history in sorted(histories.items())
            for checkpoint in history.checkpoints
        }

    def verdicts(self) -> list[Verdict]:
        """Returns the verdicts on the checkpoints in scope that exist. Condemned ones were found in their storage."""
        candidates, reasons = self._ranked()
        self._spare_unavailable(candidates, reasons)
        for trial_id in {candidate.trial_id for candidate in self._condemned(candidates, reasons)}:
            reasons |= self._kept_as_only_good([c for c in candidates if c.trial_id == trial_id], reasons)
        self._spare_unavailable(candidates, reasons)  # a storage may have failed since the first call
        listed = [self._verdict(c.storage_id, reasons) for c in candidates if c.trial_id in self._scope]
        return listed + self._unlisted_verdicts()

    def _ranked(self) -> tuple[list[Candidate], Reasons]:
        """Returns the checkpoints that exist, and the reasons for which some of them are kept.

        The files of a recorded checkpoint may have been removed. Such a checkpoint must not be kept in place of one
        that is there, so the checkpoints on which a deletion depends are looked up in their storages.
        """
        candidates = [_candidate(*recorded) for recorded in self._recorded.values()]
        while True:
            kept = keep(candidates, self._rules.policy, self._rules.metric)
            protected = protect(candidates, self._references)
            reasons = {key: kept.get(key, []) + protected.get(key, []) for key in kept.keys() | protected.keys()}
            condemned = self._condemned(candidates, reasons)
            crucial = self._crucial(candidates, condemned, kept)
            missing = {key for key in crucial if self._look(key) == "missing"}
            if not missing:
                return candidates, reasons
            candidates = [candidate for candidate in candidates if candidate.storage_id not in missing]

    def _condemned(self, candidates: Iterable[Candidate], reasons: Reasons) -> list[Candidate]:
        return [c for c in candidates if c.storage_id not in reasons and c.trial_id in self._scope]

    def _crucial(self, candidates: Iterable[Candidate], condemned: Sequence[Candidate], kept: Reasons) -> set[str]:
        if not condemned:
            return set()
        trials = {candidate.trial_id for candidate in condemned}
        ranks_all = self._rules.policy.save_experiment_best > 0 and self._rules.metric is not None
        rivals = {c.storage_id for c in candidates if c.storage_id in kept and (ranks_all or c.trial_id in trials)}
        return rivals | {candidate.storage_id for candidate in condemned}

    def _spare_unavailable(self, candidates: Sequence[Candidate], reasons: Reasons) -> None:
        for candidate in self._condemned(candidates, reasons):
            _, checkpoint = self._recorded[candidate.storage_id]
            if self._inspector.is_read(checkpoint.record.storage, candidate.storage_id):
                reasons[candidate.storage_id] = ["a process is reading it"]
            if self._look(candidate.storage_id) == "unreachable":
                reasons[candidate.storage_id] = ["its storage cannot be reached"]

    def _kept_as_only_good(self, of_trial: Sequence[Candidate], reasons: Reasons) -> Reasons:
        """Returns what must also be kept, with the reasons, so that the trial keeps a checkpoint that can be read."""
        trusted = in_order_of_trust(of_trial)
        staying = [candidate for candidate in trusted if candidate.storage_id in reasons]
        condemned = [candidate for candidate in trusted if candidate.storage_id not in reasons]
        if any(map(self._is_good, staying)):
            return {}
        for candidate in condemned:
            if self._is_good(candidate):
                return {candidate.storage_id: [f"the only good checkpoint of trial {candidate.trial_id}"]}
        # None can be read now, but some may be repaired.
        nothing_good = f"no checkpoint of trial {of_trial[0].trial_id} is good"
        return {c.storage_id: [nothing_good] for c in of_trial if c.storage_id not in reasons}

    def _is_good(self, candidate: Candidate) -> bool:
        _, checkpoint = self._recorded[candidate.storage_id]
        return self._inspector.is_good(checkpoint.record.storage, candidate.storage_id)

    def _look(self, storage_id: str) -> str:
        _, checkpoint = self._recorded[storage_id]
        return self._inspector.look(checkpoint.record.storage, storage_id).presence

    def _verdict(self, storage_id: str, reasons: Reasons) -> Verdict:
        trial_id, checkpoint = self._recorded[storage_id]
        otherwise = "a later attempt went back behind it" if checkpoint.is_superseded else "the policy does not keep it"
        return Verdict(
            storage_id=storage_id,
            trial_id=trial_id,
            experiment_id=self._experiment_id,
            steps_completed=checkpoint.record.steps_completed,
            size_bytes=sum(checkpoint.resources.values()),
            storage=checkpoint.record.storage,
            is_kept=storage_id in reasons,
            reasons=tuple(reasons.get(storage_id, [otherwise])),
        )

    def _unlisted_verdicts(self) -> list[Verdict]:
        # A running trial may be saving now. For a doubtful trial, the record that lists the checkpoint may be lost.
        unclear = self._references.running.keys() | self._references.doubtful.keys()
        verdicts = [
            self._unlisted_verdict(trial_id, checkpoint)
            for trial_id in sorted(set(self._scope) - unclear)
            for checkpoint in self._histories[trial_id].unlisted
            if not checkpoint.is_inherited
        ]
        return [verdict for verdict in verdicts if verdict is not None]

    def _unlisted_verdict(self, trial_id: int, checkpoint: UnlistedCheckpoint) -> Verdict | None:
        look = self._inspector.look(checkpoint.storage, checkpoint.storage_id)
        if references_to(checkpoint.storage_id, self._references) or look.presence == "unreachable":
            return None
        if look.presence == "missing" and not checkpoint.is_condemned:
            return None  # the save failed, and left nothing
        interrupted = "deletion" if checkpoint.is_condemned else "save"
        return Verdict(
            storage_id=checkpoint.storage_id,
            trial_id=trial_id,
            experiment_id=self._experiment_id,
            steps_completed=None,
            size_bytes=look.size_bytes,
            storage=checkpoint.storage,
            is_kept=False,
            reasons=(f"not listed: its {interrupted} was interrupted",),
        )


def _candidate(trial_id: int, checkpoint: RecordedCheckpoint) -> Candidate:
    """Returns the facts about a checkpoint that the rules use."""
    return Candidate(
        storage_id=checkpoint.record.storage_id,
        trial_id=trial_id,
        validation=checkpoint.validation,
        is_superseded=checkpoint.is_superseded,
        is_partial=checkpoint.is_partial,
        is_pinned=checkpoint.pin is not None,
        note=checkpoint.pin.note if checkpoint.pin else "",
        is_inherited=checkpoint.is_inherited,
        steps_completed=checkpoint.record.steps_completed,
        hours=checkpoint.hours,
    )
