"""Collection deletes the checkpoints that neither the policy nor anything else keeps.

    plan        reads the journals of the experiments in question, applies the rules of `retention`, and looks into the
                storages: what would be deleted is there, and each trial keeps a checkpoint that can be read
    carry out   plans again, now with every trial concerned claimed, and deletes what both plans condemn

What keeps this safe:

- A deletion has three steps: the trial's `changes.journal` gets `checkpoint_condemned`, the storage deletes the files,
  and the journal gets `checkpoint_deleted`. After the first step the checkpoint is no longer listed or offered to a
  resume. A kill in between leaves files that no list shows. The next collection finds the first line without the last,
  and finishes the deletion.
- A save records `checkpoint_begun`, completes the checkpoint, and records `checkpoint`. If a kill left only the first
  record, and the attempt has ended, collection removes what it finds. Only checkpoints that a journal of this home
  names are ever deleted, so that homes may share a storage.
- `collection.lock` in the home lets only one collector work at a time. The second one plans again after the first one
  has ended. The lock is not held while a person is asked, which is why there is a second plan.
- A running trial is left alone, and a checkpoint that a running attempt refers to is kept, whatever trial it belongs
  to. A resume first claims the next attempt (`tracking.next_attempt`), and only then chooses its checkpoint. The
  collector holds this claim for each trial from which it deletes, so that either the resume is refused, or the
  collector leaves the trial alone. An attempt that collects at its own end still counts as running, which is as good
  as the claim.
- A launcher that restarts ranks does not take that claim. If it chooses a checkpoint just when it is deleted, that
  attempt fails to restore it, and the next start chooses another one: at least one good checkpoint always stays. The
  same holds for a new trial that begins with another trial's checkpoint, until its run info is written.
- A reader of a checkpoint holds a lock on its manifest, or a lease in its bucket. The collector holds that lock alone
  while it deletes, so that one of the two is refused: also where the reader belongs to another home.
- A pin and a deletion are recorded under one lock, the lock of the trial's changes. The second of the two is refused.
- Registering a version of a model and deleting a checkpoint need the same lock, `models/models.lock`.
- In a storage that cannot be reached, nothing is condemned. Records that are damaged, or that a full disk refused,
  might have been a pin or a validation, so nothing of such a trial is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Self

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.files import is_full
from core_sdk._ground.records import ExperimentRecord, RetentionPolicy, SearcherMetric, chosen_metric
from core_sdk._home.deletion._by_hand import recording, remove_checkpoint
from core_sdk._home.deletion._inspection import UNREACHABLE, Inspector
from core_sdk._home.deletion._planning import ExperimentPlan, Rules, Verdict
from core_sdk._home.deletion.references import TrialsByExperiment, read_trials
from core_sdk._home.deletion.retention import References
from core_sdk._home.folders import Home, TrialFolder, with_reserve
from core_sdk._home.history import TrialHistory, read_history
from core_sdk._home.next_attempt import claimed_next_attempt
from core_sdk._home.registry import Registry
from core_sdk._home.storage import Storage
from core_sdk.errors import (
    CheckpointError,
    CheckpointProtectedError,
    ExperimentNotFoundError,
    HomeError,
    NotRecordedError,
    RecordDamagedError,
    TrialNotFoundError,
    TrialRunningError,
)

# Each claim holds a file open.
_TRIALS_AT_ONCE = 64


@dataclass(frozen=True)
class Request:
    """A request to collect, with rules that replace the recorded ones."""

    experiment_id: int | None = None
    trial_id: int | None = None
    """The only trial whose checkpoints may be deleted; None for all trials."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a policy that replace the recorded ones."""
    metric: str | None = None
    smaller_is_better: bool | None = None
    ended_trial: int | None = None
    """The trial whose attempt this process executes and has ended."""
    with_inherited: bool = False
    """Whether checkpoints that may belong to another home count as this home's, because the other home is gone."""
    storages: Collection[str] = ()
    """The URLs of further storages from which the remains of dead processes are removed."""


@dataclass(frozen=True)
class CollectionPlan:
    rules: Mapping[int, Rules]
    """The rules by experiment. Experiments without rules are not inspected."""
    verdicts: tuple[Verdict, ...]
    problems: tuple[str, ...]
    """Storages that cannot be reached, and records that are damaged; nothing in them is condemned."""

    @property
    def condemned(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.is_kept]


@dataclass(frozen=True)
class Deletions:
    deleted: tuple[Verdict, ...]
    spared: tuple[Verdict, ...]
    """Checkpoints that the plan condemned, but that were not deleted. Their reasons say why."""
    problems: tuple[str, ...]


class Collector:
    """Makes a plan, and carries it out."""

    def __init__(self, home: Home, request: Request, storages: Sequence[Storage] = ()) -> None:
        self._home = home
        self._request = request
        self._inspector = Inspector(storages)
        self._known_metrics: set[str] = set()
        self._damage: dict[str, str] = {}
        """The reasons for which records cannot be read, by experiment or trial."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._inspector.close()

    def plan(self) -> CollectionPlan:
        """Returns a plan, and deletes nothing.

        Raises `TrialNotFoundError` or `ExperimentNotFoundError`. Raises `NotRecordedError` if no validation has the
        requested metric, but some have others. Raises `RecordDamagedError` for a record that might protect any
        checkpoint, and for the record of the requested experiment.
        """
        wanted = self._wanted_experiment()
        if wanted is not None and self._rules(wanted) is None:
            return CollectionPlan({}, (), ())  # without a look at the trials, of which a home may have thousands
        trials, references = self._read_trials()
        found = {experiment_id: self._readable_rules(experiment_id) for experiment_id in sorted(trials)}
        rules = {experiment_id: rules for experiment_id, rules in found.items() if rules is not None}
        verdicts = self._verdicts({experiment_id: trials[experiment_id] for experiment_id in rules}, rules, references)
        metric = self._request.metric
        names = set() if metric is None else {metric, metric.removeprefix("validation.")}
        if names and self._known_metrics and not names & self._known_metrics:
            raise NotRecordedError(
                f"no validation has the metric {metric!r}", "Those reported are", sorted(self._known_metrics)
            )
        return CollectionPlan(rules, tuple(verdicts), self._problems())

    def carry_out(self, plan: CollectionPlan, *, wait_s: float = -1) -> Deletions:
        """Deletes the checkpoints that the plan condemns, and that a second plan condemns, too. Sweeps the storages.

        Waits like `collect`. Raises `HomeError`.
        """
        from filelock import Timeout  # imports asyncio, which a training script need not pay for

        condemned: dict[int, list[Verdict]] = {}
        for verdict in plan.condemned:
            condemned.setdefault(verdict.trial_id, []).append(verdict)
        deleted: list[Verdict] = []
        spared: list[Verdict] = []
        try:
            with file_lock(self._home.root / "collection.lock", wait_s):
                trials = sorted(condemned)
                for begin in range(0, len(trials), _TRIALS_AT_ONCE):
                    for verdict in self._delete_of(trials[begin : begin + _TRIALS_AT_ONCE], plan, condemned):
                        (spared if verdict.is_kept else deleted).append(verdict)
        except Timeout as error:
            raise HomeError(
                f"another process has been deleting checkpoints of {self._home.root} for over {wait_s:g} s. Nothing "
                "was deleted here; try again later."
            ) from error
        self._inspector.sweep(self._request.storages)
        return Deletions(tuple(deleted), tuple(spared), self._problems())

    def _delete_of(
        self, trials: Collection[int], plan: CollectionPlan, condemned: Mapping[int, Collection[Verdict]]
    ) -> Iterator[Verdict]:
        """Yields what was condemned in these trials, as kept if it was not deleted."""
        with contextlib.ExitStack() as claims:
            claimed = {trial_id for trial_id in trials if self._claim(trial_id, claims)}
            now = self._verdicts_now(plan, claimed)
            for trial_id in sorted(trials):
                for verdict in condemned[trial_id]:
                    if trial_id not in claimed:
                        yield _spared(verdict, "its trial has been started since")
                    elif verdict.storage_id not in now:
                        yield _spared(verdict, "it is not there any more")
                    elif (second := now[verdict.storage_id]).is_kept:
                        yield second
                    else:
                        yield self._delete(verdict)

    def _claim(self, trial_id: int, claims: contextlib.ExitStack) -> bool:
        if trial_id == self._request.ended_trial:
            return True
        with contextlib.suppress(TrialRunningError, TrialNotFoundError, FileNotFoundError):
            claims.enter_context(claimed_next_attempt(self._home.trial(trial_id), "delete checkpoints of"))
            return True
        return False

    def _verdicts_now(self, plan: CollectionPlan, trials: Set[int]) -> dict[str, Verdict]:
        concerned = {verdict.experiment_id for verdict in plan.condemned if verdict.trial_id in trials}
        trials_now, references = self._read_trials()
        present = {experiment_id: trials_now[experiment_id] for experiment_id in concerned & trials_now.keys()}
        verdicts = self._verdicts(present, plan.rules, references)
        return {verdict.storage_id: verdict for verdict in verdicts if verdict.trial_id in trials}

    def _delete(self, verdict: Verdict) -> Verdict:
        """Returns the verdict, as kept if the checkpoint was not deleted. Raises `OSError` if the disk is full."""
        if verdict.storage in self._inspector.problems:
            return _spared(verdict, "its storage has failed")
        folder = TrialFolder(self._home.root, verdict.trial_id)

        def delete() -> None:
            storage = self._inspector.storage(verdict.storage)
            with storage.deleting(verdict.storage_id), Registry(self._home).deleting([verdict.storage_id]):
                remove_checkpoint(storage, verdict.storage_id, recording(folder), "; ".join(verdict.reasons))

        try:
            with_reserve(self._home.root, delete)
        except CheckpointProtectedError as error:
            return _spared(verdict, *error.reasons)  # it has just been registered or pinned, or is being read
        except (CheckpointError, *UNREACHABLE) as error:
            if is_full(error):
                raise
            self._inspector.note_problem(verdict.storage, error)
            return _spared(verdict, "its storage has failed")
        return verdict

    def _verdicts(
        self, trials: TrialsByExperiment, rules: Mapping[int, Rules], references: References
    ) -> list[Verdict]:
        verdicts = []
        for experiment_id, of_experiment in trials.items():
            histories = self._histories(of_experiment, rules[experiment_id].metric)
            self._known_metrics.update(*(history.validation_metrics for history in histories.values()))
            scope = {trial_id for trial_id in histories if self._request.trial_id in (None, trial_id)}
            verdicts += ExperimentPlan(
                experiment_id, rules[experiment_id], histories, references, scope, self._inspector
            ).verdicts()
        return verdicts

    def _histories(self, trials: Set[int], metric: SearcherMetric | None) -> dict[int, TrialHistory]:
        histories = {}
        for trial_id in sorted(trials):
            with contextlib.suppress(FileNotFoundError):  # being deleted
                folder = TrialFolder(self._home.root, trial_id)
                history = read_history(folder, with_validation=True, metric=metric)
                histories[trial_id] = history.as_own() if self._request.with_inherited else history
        return histories

    def _wanted_experiment(self) -> int | None:
        """Returns the requested experiment, or None for all experiments. Raises `TrialNotFoundError`."""
        if self._request.trial_id is not None:
            return self._home.trial(self._request.trial_id).read_record().experiment_id
        return self._request.experiment_id

    def _read_trials(self) -> tuple[TrialsByExperiment, References]:
        """Returns the trials of the requested experiments, and the references of all trials."""
        wanted = self._wanted_experiment()
        ended = frozenset() if self._request.ended_trial is None else frozenset({self._request.ended_trial})
        trials, references = read_trials(self._home, ended)
        self._damage |= {f"trial {trial_id}": problem for trial_id, problem in references.damaged.items()}
        return {found: trials[found] for found in trials if wanted in (None, found)}, references

    def _readable_rules(self, experiment_id: int) -> Rules | None:
        """Returns the rules of an experiment, or None to keep everything, for example if its record is damaged."""
        try:
            return self._rules(experiment_id)
        except RecordDamagedError as error:
            self._damage[f"experiment {experiment_id}"] = str(error)
            return None

    def _rules(self, experiment_id: int) -> Rules | None:
        try:
            return rules_of(self._home.experiment(experiment_id).read(), self._request)
        except ExperimentNotFoundError:
            return None  # deleted; its trials are about to be

    def _problems(self) -> tuple[str, ...]:
        return tuple(
            f"{place}: {problem}" for place, problem in sorted((self._damage | self._inspector.problems).items())
        )


def _spared(verdict: Verdict, *reasons: str) -> Verdict:
    return replace(verdict, is_kept=True, reasons=reasons)


def collect(home: Home, request: Request, *, storages: Sequence[Storage] = (), wait_s: float = -1) -> Deletions:
    """Makes a plan and carries it out at once.

    Waits at most `wait_s` for another collector, without a limit if it is negative. `storages` are those that are open
    already.
    """
    with Collector(home, request, storages) as collector:
        return collector.carry_out(collector.plan(), wait_s=wait_s)


def rules_of(experiment: ExperimentRecord, request: Request) -> Rules | None:
    """Returns the rules, or None to keep everything, if no policy is recorded and none is requested."""
    if experiment.retention is None and not request.policy:
        return None
    recorded = msgspec.to_builtins(experiment.retention or RetentionPolicy())
    metric = chosen_metric(experiment.searcher_metric, request.metric, request.smaller_is_better)
    return Rules(RetentionPolicy.checked({**recorded, **request.policy}), metric)
