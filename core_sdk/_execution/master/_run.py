"""Carries out one experiment: its decisions are recorded first, and then done."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from uuid import UUID

from core_sdk._execution.experiments._actions import Action, AskToStop, Finish, Kill, Settle, TellLength
from core_sdk._execution.experiments._trial import TrialStateMachine
from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.experiments.code import check_archive, remove_code
from core_sdk._execution.experiments.events import EventJournal
from core_sdk._execution.experiments.following import FollowedExperiment
from core_sdk._execution.experiments.protocol import RunningTrial
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._attempt import RunningAttempt
from core_sdk._execution.master._judging import judge, read_last_words
from core_sdk._execution.master._queue import Demand
from core_sdk._execution.master.pools import Begun, Claim, MakeClaim, ResourcePool, split_nodes
from core_sdk._execution.messages import post_end_of_experiment
from core_sdk._ground.config import Resources
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import (
    AttemptBegun,
    AttemptOutcome,
    AttemptOver,
    Event,
    ExperimentEnded,
    ExperimentWanted,
    KillSent,
    OperationCompleted,
    Report,
    Settled,
    Source,
    StopSent,
    TrialNumbered,
    ValidationRead,
    metrics_from_json,
)
from core_sdk._home.attempts.ending import read_settled
from core_sdk._home.attempts.operations import post_operations
from core_sdk._home.attempts.setbacks import is_of_guard
from core_sdk._home.attempts.starting import requested_trials
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.rows import StreamPosition
from core_sdk._home.states import GOES_ON
from core_sdk._home.streams import read_news, read_validations
from core_sdk.errors import CodeDamagedError, CoreSDKError, HomeError, RecordDamagedError

logger = logging.getLogger("core_sdk.master")

# Each publication costs an fsync or two.
_PUBLISH_S = 0.5


class Run:
    """An experiment with its journal and its running attempts."""

    def __init__(self, home: Home, submission: SubmittedExperiment, pool: ResourcePool) -> None:
        """Replays the events. Raises `RecordDamagedError`."""
        submission.check()
        self.pool = pool
        self._home = home
        self._submission = submission
        self._config = submission.config
        self._hears_writer = submission.config.searcher.writer
        followed = FollowedExperiment(home, submission.experiment_id)
        for _ in followed.read():
            pass
        self.experiment = followed.experiment
        self._journal = EventJournal(submission.folder.events_path)
        self.attempts: dict[UUID, RunningAttempt] = {}
        self._claims: dict[UUID, Claim] = {}
        self._published: tuple[str, int, int] = ("", 0, 0)
        self._published_at = 0.0

    # Requests of the master

    def check_code(self) -> None:
        """Raises `CodeDamagedError` if no further trial can get its copy of the code."""
        if self._submission.record.code is not None:
            check_archive(self._home, self._submission.record.code)

    def record(self, event: Event) -> None:
        """Appends the event to the journal, and then applies it. Raises `OSError` or `RecordDamagedError`."""
        self._journal.append(event)
        self.experiment.apply(event)

    def recover(self) -> None:
        """Finds the attempts that run, and carries out decisions that may not have been carried out.

        Is called after a replay, and after an error of the disk. In a copy of the home in which it ran it is paused
        first, since its trials may be running there.
        """
        if self.experiment.state == "ACTIVE" and self._submission.is_from_elsewhere():
            by = "the home was copied or moved"
            self.record(ExperimentWanted(time=time.time(), state="PAUSED", by=by))
        trials = self.experiment.trials.values()
        unfinished = [trial for trial in trials if not trial.is_over and trial.request_id not in self._claims]
        found = {}
        if any(trial.trial_id is None for trial in unfinished):
            found = requested_trials(self._home, self.experiment.experiment_id)
        for trial in unfinished:
            if trial.trial_id is None and str(trial.request_id) in found:
                trial_id = found[str(trial.request_id)]
                self.record(TrialNumbered(time=time.time(), request_id=trial.request_id, trial_id=trial_id))
            if trial.trial_id is not None and trial.request_id not in self.attempts:
                self._recover_attempt(trial, self._home.folder(trial.trial_id))
        for request_id, attempt in list(self.attempts.items()):
            self._repeat(self.experiment.trials[request_id], attempt)
        self.carry_out(self.experiment.outstanding())

    @property
    def resources(self) -> Resources:
        return self._config.resources

    @property
    def slots_per_trial(self) -> int:
        return self.resources.slots_per_trial

    def demand(self) -> Demand:
        experiment = self.experiment
        running = list(experiment.running())
        claims = {request_id: claim for request_id, claim in self._claims.items() if not claim.is_abandoned}
        boots = {trial.request_id: trial.boot for trial in running}
        boots |= {request_id: claim.node for request_id, claim in claims.items() if claim.node is not None}
        nodes = {request_id: split_nodes(boot) for request_id, boot in boots.items()}
        return Demand(
            experiment.experiment_id,
            experiment.priority,
            self.slots_per_trial,
            experiment.max_slots,
            [request_id for request_id in experiment.waiting if request_id not in self._claims],
            list(nodes),
            nodes,
            [request_id for request_id in claims if request_id not in nodes],
            frozenset(trial.request_id for trial in running if trial.stop is not None),
            self.pool.num_nodes(self.resources),
            experiment.place,
            self.pool.usable_nodes(self.resources),
            {request_id: self.slots_of(request_id) for request_id in nodes},
            self.resources,
        )

    def waiting(self) -> list[tuple[float, str]]:
        """Returns since when each waiting trial waits, and in what way if it does so in a cluster's queue, in order."""
        waits = [(self._claims.get(each), since) for each, since in self.experiment.waiting.items()]
        return [(since, claim.wait if claim else "") for claim, since in waits if claim is None or claim.wait]

    def occupied(self) -> Iterator[RunningTrial]:
        """Yields each trial that runs or is about to."""
        for trial in self.experiment.running():
            if trial.trial_id is not None:
                hosts = tuple(filter(None, map(self.pool.host_of, split_nodes(trial.boot))))
                yield RunningTrial(trial.trial_id, trial.slots, hosts)
        for claim in self._claims.values():
            if not (claim.is_abandoned or claim.wait):
                yield RunningTrial(claim.folder.trial_id, claim.slot_ids)

    def num_occupied(self) -> Counter[str]:
        """Returns the number of slots on each node that its attempts have."""
        return Counter(
            node
            for nodes in self.demand().nodes.values()
            for node in nodes
            for _ in range(self.slots_per_trial // len(nodes))
        )

    def start(self, request_id: UUID, claim: MakeClaim) -> tuple[int, ...]:
        """Claims the trial's next attempt by `claim`. Returns its slots if they are known already.

        `look` lets the attempt begin as soon as the claim is complete.
        """
        trial = self.experiment.trials[request_id]
        try:
            folder = self._home.create_trial() if trial.trial_id is None else self._home.folder(trial.trial_id)
        except HomeError as error:
            raise OSError(str(error)) from error
        if trial.last_attempt and not folder.exists():
            self._fail_to_start(trial, (), _removed(folder))
            return ()
        claimed = self._claims[request_id] = claim(self._order(trial, folder, trial.num_attempts + 1))
        return claimed.slot_ids

    def is_beginning(self, trial_id: int) -> bool:
        """Returns whether the trial is about to begin. `look` then records its number."""
        return any(claim.folder.trial_id == trial_id and not claim.is_abandoned for claim in self._claims.values())

    def withdraw(self, request_id: UUID) -> None:
        """Takes back the claim of the trial's next attempt."""
        self._claims[request_id].abandon()

    def slots_of(self, request_id: UUID) -> tuple[int, ...]:
        """Returns the slots of a trial that runs or is about to."""
        claim = self._claims.get(request_id)
        return self.experiment.trials[request_id].slots if claim is None else claim.slot_ids

    def preempt(self, request_id: UUID, reason: str) -> None:
        trial = self.experiment.trials[request_id]
        if request_id in self._claims:
            self.withdraw(request_id)
        elif trial.stop is None:
            self.carry_out([AskToStop(request_id, reason)])

    def look(self) -> None:
        """Lets claimed attempts begin, reads the reports of running attempts, and finds those that have ended."""
        self._journal.check()
        for request_id, claim in list(self._claims.items()):
            if request_id not in self.experiment.waiting:
                claim.abandon()
            if claim.is_over:
                del self._claims[request_id]
                if not claim.is_abandoned:
                    self._begin(self.experiment.trials[request_id], claim)
        for request_id, attempt in list(self.attempts.items()):
            trial = self.experiment.trials[request_id]
            try:
                self._look_at(trial, attempt)
            except (CoreSDKError, OSError, ValueError):
                if not attempt.is_gone:
                    raise
                self._give_up(trial, attempt)
        self.carry_out(self.experiment.take_due())

    def _look_at(self, trial: TrialStateMachine, attempt: RunningAttempt) -> None:
        if attempt.is_gone:
            self._give_up(trial, attempt)
            return
        is_over = attempt.execution.is_over
        self._read(trial, attempt)
        if is_over:
            self._end(trial, attempt)
        elif trial.stop is None and (notice := attempt.execution.notice):
            self.preempt(trial.request_id, notice)
        elif trial.stop is not None and trial.kill is None and attempt.is_late:
            self.carry_out([Kill(trial.request_id, "it did not stop in time")])

    def carry_out(self, actions: Iterable[Action]) -> None:
        now = time.time()
        for action in actions:
            match action:
                case AskToStop(request_id, reason):
                    attempt = self.attempts[request_id]
                    kill_at = now + self._config.preemption_timeout
                    self.record(
                        StopSent(
                            time=now, request_id=request_id, attempt=attempt.number, reason=reason, kill_at=kill_at
                        )
                    )
                    if not attempt.is_gone:  # otherwise the next look gives it up
                        attempt.ask_to_stop(reason, self._config.preemption_timeout)
                case Kill(request_id, reason):
                    attempt = self.attempts[request_id]
                    self.record(KillSent(time=now, request_id=request_id, attempt=attempt.number, reason=reason))
                    attempt.execution.kill()
                case TellLength(request_id):
                    self._post_operations(self.experiment.trials[request_id])
                case Settle(request_id):
                    self._settle_at_rest(self.experiment.trials[request_id])
                case Finish(state, reason):
                    self._post_end(state, reason)
                    self.record(ExperimentEnded(time=now, state=state, reason=reason))

    def _post_end(self, state: str, reason: str) -> None:
        """Posts the end to whoever wants messages: before it is recorded, so that a kill in between loses none."""
        trials = self.experiment.trials.values()
        num_failed = sum(trial.state == "ERROR" for trial in trials)
        told = [state.lower(), reason, f"{len(trials)} trials", f"{num_failed} failed" if num_failed else ""]
        submission = self._submission
        body = ", ".join(filter(None, told))
        post_end_of_experiment(submission.home.root, submission.experiment_id, self._config.name, body)

    def publish(self) -> None:
        """Writes what lists of experiments show, if it has changed. While trials run, at most twice a second."""
        experiment, now = self.experiment, time.monotonic()
        shown = experiment.state, experiment.num_running, experiment.num_events
        is_due = not experiment.num_running or now - self._published_at > _PUBLISH_S or self._published[:1] != shown[:1]
        if shown != self._published and is_due and experiment.num_events:
            self._journal.sync()
            self._submission.publish(self.experiment)
            self._published, self._published_at = shown, now

    def close(self) -> None:
        with contextlib.suppress(CoreSDKError, OSError):  # lists then show an older state until the next master
            self.publish()
        self.leave(claims_stay=not self.experiment.is_ended)

    def leave(self, *, claims_stay: bool = False) -> list[Claim]:
        """Closes the journal. Returns the attempts that were about to begin, which are being taken back.

        With `claims_stay`, those that wait in a queue of a cluster stay there for the next master.
        """
        for claim in self._claims.values():
            if claims_stay:
                claim.leave()
            else:
                claim.abandon()
        self._journal.close()
        return list(self._claims.values())

    # Carrying out

    def _order(self, trial: TrialStateMachine, folder: TrialFolder, number: int) -> AttemptOrder:
        """Returns the order for the trial's attempt that is recorded as the `number`-th one."""
        return AttemptOrder(
            name=f"{folder.trial_id}.{number}",
            home_root=self._home.root,
            experiment_id=self.experiment.experiment_id,
            # Only nodes of a cluster ask whether they see this home.
            home_identity=self._home.identity() if self.pool.cluster else "",
            trial_id=folder.trial_id,
            is_first=trial.trial_id is None,
            num_slots=self.slots_per_trial,
            num_nodes=self.pool.num_nodes(self.resources),
            request_id=str(trial.request_id),
            hparams=trial.hparams,
            seed=trial.seed,
            warm_start=trial.checkpoint,
            asked=self.experiment.waiting.get(trial.request_id),
        )

    def _begin(self, trial: TrialStateMachine, claim: Claim) -> None:
        try:
            begun = claim.begun()
        except (CoreSDKError, OSError) as error:
            self._take_failure(trial, claim, error)
            return
        try:
            if trial.trial_id is None:
                self.record(
                    TrialNumbered(time=time.time(), request_id=trial.request_id, trial_id=claim.folder.trial_id)
                )
            self._record_begin(trial, begun)
            self._post_operations(trial)
        except OSError:
            claim.release()
            raise
        position = StreamPosition(begun.number)
        self.attempts[trial.request_id] = RunningAttempt(claim.folder, begun.number, position, claim.start())
        self.carry_out(self.experiment.take_due())

    def _take_failure(self, trial: TrialStateMachine, claim: Claim, error: CoreSDKError | OSError) -> None:
        """Ends a trial that cannot begin its next attempt.

        If the cause lies in the experiment's own files or in the disk, it is raised instead.
        """
        if trial.last_attempt and not claim.folder.exists():
            self._fail_to_start(trial, claim.slot_ids, _removed(claim.folder))
            return
        match error:
            case RecordDamagedError() if not error.path.is_relative_to(self._submission.folder.path):
                pass
            case CodeDamagedError() | RecordDamagedError():
                raise error
            case HomeError() | OSError():
                raise OSError(str(error)) from error
        self._fail_to_start(trial, claim.slot_ids, str(error))

    def _post_operations(self, trial: TrialStateMachine) -> None:
        if trial.lengths and trial.trial_id is not None and (folder := self._home.folder(trial.trial_id)).exists():
            post_operations(folder, trial.lengths, is_closed=trial.is_closed)

    def _record_begin(self, trial: TrialStateMachine, begun: Begun) -> None:
        self.record(
            AttemptBegun(
                time=time.time(),
                request_id=trial.request_id,
                attempt=begun.number,
                slots=list(begun.slot_ids),
                boot=begun.boot,
            )
        )

    def _fail_to_start(self, trial: TrialStateMachine, slot_ids: tuple[int, ...], reason: str) -> None:
        self._record_begin(trial, Begun(trial.last_attempt + 1, slot_ids, ""))
        self._record_end(trial, "hopeless", reason)
        folder = self._home.folder(trial.trial_id or 0)
        if folder.exists():  # its last attempt does not tell
            self._settle(folder, "ERROR", reason)
        self.carry_out(self.experiment.take_due())

    def _recover_attempt(self, trial: TrialStateMachine, folder: TrialFolder) -> None:
        """Finds the trial's attempt that an earlier master has started, was about to start, or has not recorded."""
        was_removed = trial.last_attempt > 0 and not folder.exists()
        if (
            trial.attempt is None
            and not was_removed
            and (found := self.pool.find_unrecorded(folder, trial.last_attempt)) is not None
        ):
            self._record_begin(trial, found)
        if trial.attempt is None:
            return
        begun = Begun(trial.attempt, trial.slots, trial.boot)
        execution = self.pool.recover(self._order(trial, folder, trial.num_attempts), begun)
        if execution is None and was_removed:
            self._record_end(trial, "hopeless", _removed(folder))
        elif execution is None:
            self._record_end(trial, "lost", "the master was killed before it could start it")
        else:
            position = StreamPosition(*trial.position)
            self.attempts[trial.request_id] = RunningAttempt(folder, trial.attempt, position, execution)

    def _repeat(self, trial: TrialStateMachine, attempt: RunningAttempt) -> None:
        """Repeats the stop or the kill that was recorded, and may not have been carried out."""
        if attempt.is_gone or attempt.execution.is_over:
            return
        if trial.stop is not None:
            attempt.ask_to_stop(trial.stop.reason, self._config.preemption_timeout)
        if trial.kill is not None:
            attempt.execution.kill()

    def _read(self, trial: TrialStateMachine, attempt: RunningAttempt) -> None:
        stretch = read_news(attempt.folder, attempt.position)
        for news in stretch.news:
            if self._hears_writer and isinstance(news.record, Report):
                pass  # the search hears of the writer's instead
            elif isinstance(news.record, OperationCompleted if trial.lengths else Report):
                self.record(self._validation(trial, news.record, news.end))
            # Of a script that trains by operations, only the completed operations count, not its other validations.
            elif isinstance(news.record, Report) and self.experiment.is_news(news.record.metrics):
                names = sorted(news.record.metrics)
                self.record(self._validation_read(trial, news.end, names=names))
            attempt.position = news.end
        attempt.position = stretch.end
        if self._hears_writer:
            for number, _ in (key for key in attempt.folder.other_journals() if key[1] == self._hears_writer):
                self._read_other(trial, number, self._hears_writer)
        self.carry_out(self.experiment.take_due())

    def _hear_another_rank(self, trial: TrialStateMachine, attempt: RunningAttempt) -> None:
        """Reads the searcher's metric from the lowest rank that has reported it, if rank 0 never has.

        Called at the end of an attempt, since until then rank 0 may still report the metric.
        """
        if trial.lengths or trial.is_told_by_chief or self._hears_writer:
            return
        journals = attempt.folder.other_journals()
        for number in range(trial.last_attempt, attempt.position.attempt + 1):
            for rank in (source for of, source in journals if of == number and isinstance(source, int)):
                if self._read_other(trial, number, rank):
                    break

    def _read_other(self, trial: TrialStateMachine, number: int, source: Source) -> bool:
        """Records what a rank or a writer has told of an attempt since. Returns whether it has told the metric."""
        folder = self._home.folder(trial.trial_id or 0)
        start = StreamPosition(number, trial.other_positions.get((number, source), 0))
        read = [self._validation(trial, report, end, source) for report, end in read_validations(folder, start, source)]
        told = [each for each in read if each.metric is not None]
        for each in told:
            self.record(each)
        return bool(told)

    def _validation(
        self, trial: TrialStateMachine, record: OperationCompleted | Report, end: StreamPosition, rank: Source = 0
    ) -> ValidationRead:
        if isinstance(record, OperationCompleted):
            values = {"metric": record.metric, "length": record.length, "is_operation": True}
        else:
            metrics = metrics_from_json(record.metrics)
            told = self.experiment.validation(trial.request_id, metrics, record.steps_completed)
            values = {"metric": told.metric, "length": told.length, "names": list(told.reported)}
        return self._validation_read(trial, end, rank=rank, **values)

    @staticmethod
    def _validation_read(trial: TrialStateMachine, end: StreamPosition, **values: Any) -> ValidationRead:
        return ValidationRead(
            time=time.time(), request_id=trial.request_id, attempt=end.attempt, offset=end.offset, **values
        )

    def _give_up(self, trial: TrialStateMachine, attempt: RunningAttempt) -> None:
        """Kills the processes of a trial whose folder was removed, and ends the trial."""
        attempt.execution.kill()
        self._record_end(trial, "hopeless", _removed(attempt.folder))
        del self.attempts[trial.request_id]

    def _end(self, trial: TrialStateMachine, attempt: RunningAttempt) -> None:
        self._hear_another_rank(trial, attempt)
        outcome: AttemptOutcome = "hopeless"
        reason = attempt.execution.problem
        if not reason:
            outcome, reason = judge(
                attempt.folder,
                was_asked=trial.stop is not None,
                was_killed=trial.kill is not None,
                loss=attempt.execution.loss,
                hopeless=self._hopeless_patterns(),
                lost_node=attempt.execution.lost_node,
            )
        if (verdict := trial.verdict(outcome)) is not None:
            self._settle(attempt.folder, *verdict)
        elif outcome == "completed" and is_of_guard(reason):
            self._settle(attempt.folder, "COMPLETED", reason)
        last_words = "" if outcome != "failed" or attempt.has_begun else read_last_words(attempt.folder)
        self._record_end(trial, outcome, reason, last_words)
        if outcome in ("failed", "lost") and not trial.is_over:
            self._settle(attempt.folder, "PAUSED", f"{GOES_ON}: {reason}")
        elif trial.state == "ERROR" and attempt.execution.lost_node:
            self._settle(attempt.folder, "ERROR", reason)  # its script knows only what followed
        del self.attempts[trial.request_id]
        if trial.state == "COMPLETED":
            with contextlib.suppress(OSError):  # a copy that stays does no harm
                remove_code(attempt.folder)

    def _settle(
        self, folder: TrialFolder, state: Literal["COMPLETED", "CANCELED", "PAUSED", "ERROR"], reason: str
    ) -> None:
        """Records the trial's state in its folder, since it was not the trial that decided it.

        A final state precedes the event. If the master is killed in between, the next master does it again.
        """
        settled = Settled(time=time.time(), state=state, reason=reason, attempt=max(folder.attempts(), default=0))
        folder.append_change(settled)

    def _settle_at_rest(self, trial: TrialStateMachine) -> None:
        folder = self._home.folder(trial.trial_id or 0)
        state: Literal["COMPLETED", "CANCELED"] = "CANCELED" if trial.state == "CANCELED" else "COMPLETED"
        settled = read_settled(folder) if folder.exists() else None
        if folder.exists() and (settled is None or settled.state != state):
            self._settle(folder, state, trial.reason)

    def _record_end(self, trial: TrialStateMachine, outcome: AttemptOutcome, reason: str, last_words: str = "") -> None:
        self.record(
            AttemptOver(
                time=time.time(),
                request_id=trial.request_id,
                attempt=trial.last_attempt,
                outcome=outcome,
                reason=reason,
                last_words=last_words,
                is_another_begun=not last_words or any(other.has_begun for other in self.attempts.values()),
            )
        )

    def _hopeless_patterns(self) -> list[str]:
        policies = self._config.log_policies
        return [policy.pattern for policy in policies if policy.action == "cancel_retries" and policy.pattern]


def _removed(folder: TrialFolder) -> str:
    """Returns the reason for which a trial ends whose records were removed. Leaves an empty folder to keep its id."""
    with contextlib.suppress(OSError):
        make_directory(folder.path, exist_ok=True)
    return f"its folder {folder.path} was removed, or its records in it"
