"""An experiment as the result of its events. The same events give the same state and the same decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from core_sdk._execution.experiments._actions import Action, Finish
from core_sdk._execution.experiments._reported import ReportedNames, warnings_of_deaf
from core_sdk._execution.experiments._trial import TrialStateMachine, Wish
from core_sdk._ground.config import ExperimentConfig
from core_sdk._ground.config.searchers import AdaptiveAshaSearcher, AsyncHalvingSearcher, CustomSearcher, SingleSearcher
from core_sdk._ground.decoding import convert
from core_sdk._ground.records import (
    AttemptBegun,
    AttemptOver,
    Event,
    ExperimentBegun,
    ExperimentContinued,
    ExperimentEnded,
    ExperimentState,
    ExperimentWanted,
    FinalState,
    KillSent,
    Metric,
    OperationsPosted,
    SettingsChanged,
    StopSent,
    TrialNumbered,
    TrialWanted,
    ValidationRead,
    from_json,
    to_json,
)
from core_sdk.search import (
    AnyOperation,
    Close,
    Create,
    ExitedReason,
    Operation,
    Pause,
    Progress,
    Search,
    SearchStarted,
    Shutdown,
    Stop,
    TrialClosed,
    TrialCreated,
    TrialExitedEarly,
    ValidateAfter,
    ValidationCompleted,
    Warn,
)
from core_sdk.search import Event as SearchEvent

NO_LIMIT = -1
MAX_SILENT = 3
"""The number of trials that a halving search trains to their ends in vain, if no trial reports what it needs."""
MAX_EARLY_DEATHS = 3
"""The number of trials that must end before `init()` with the same words until a search gives up all others."""

_STOPPING: dict[FinalState, ExperimentState] = {
    "COMPLETED": "STOPPING_COMPLETED",
    "CANCELED": "STOPPING_CANCELED",
    "ERROR": "STOPPING_ERROR",
}


class ExperimentStateMachine:
    """The state of an experiment: its searcher, its trials, and the requests of users. Only `apply` changes it.

    The trials to start are in `waiting`, and `take_due` returns the other actions. After a replay, `outstanding`
    repeats actions that may have been recorded but not carried out.
    """

    def __init__(self, experiment_id: int, config: ExperimentConfig) -> None:
        self.experiment_id = experiment_id
        self.config = config
        self.trials: dict[UUID, TrialStateMachine] = {}
        self.waiting: dict[UUID, float] = {}
        """Trials that wait to be started, in order, each with the time since which it does."""
        self.is_paused = False
        self.priority = config.resources.priority
        self.place = float(experiment_id)
        """Its place among experiments of the same priority: the oldest comes first unless somebody has moved one."""
        self.max_slots = config.resources.max_slots
        self.closing: tuple[FinalState, str] | None = None
        """The state in which it will end once its trials have ended, and the reason."""
        self.state_at_end: FinalState | None = None
        self.reason = ""
        self.num_events = 0
        self.told: list[SearchEvent] = []
        """The events for a search method outside of the master, in order."""
        self.num_answered = 0
        """The number of these events that the method has answered."""
        self._by_trial_id: dict[int, TrialStateMachine] = {}
        self._search = _open_search(config)
        self._progress: float | None = None
        self._running: dict[UUID, TrialStateMachine] = {}
        self._touched_now: dict[UUID, None] = {}
        self._dirty: dict[UUID, None] = {}
        """Trials that events have touched since the last `take_due`."""
        self._is_revived = False
        self._warnings: list[str] = []
        self._unheard: list[ValidationRead] = []
        """The reports since somebody canceled the experiment, which the searcher hears if it is continued."""
        self._early_deaths: Counter[str] = Counter()
        """The number of trials that have ended before `init()`, by their last words without numbers."""
        self._has_lasted = False
        """Whether an attempt has come to `init()`, as far as is known."""
        self._reported = ReportedNames(config.searcher)

    @property
    def state(self) -> ExperimentState:
        """ACTIVE or PAUSED; STOPPING_COMPLETED and so on while trials end; then COMPLETED, CANCELED or ERROR."""
        if self.state_at_end is not None:
            return self.state_at_end
        if self.closing is not None:
            return _STOPPING[self.closing[0]]
        return "PAUSED" if self.is_paused else "ACTIVE"

    @property
    def is_ended(self) -> bool:
        return self.state_at_end is not None

    @property
    def beginnings(self) -> list[str]:
        """The checkpoints that trials which have not been made yet are to begin with."""
        trials = self.trials.values()
        return sorted({each.checkpoint for each in trials if each.checkpoint and each.trial_id is None})

    @property
    def progress(self) -> float:
        """The part of the search that is done, from 0 to 1."""
        if self.state_at_end == "COMPLETED":
            return 1.0
        if self._progress is None:
            return self._search.progress if self._search else 0.0
        return self._progress

    @property
    def rung_lengths(self) -> list[int]:
        """The lengths of the rungs, as `Search.lengths` has them; empty for a user's own method."""
        return self._search.lengths if self._search else []

    @property
    def brackets(self) -> list[list[int]]:
        """The lengths of the rungs of each bracket, as `Search.brackets` has them; empty for a user's own method."""
        return self._search.brackets if self._search else []

    @property
    def warnings(self) -> list[str]:
        trials = list(self.trials.values())
        return [*self._warnings, *self._reported.warnings(trials), *warnings_of_deaf(trials, self.config)]

    @property
    def obstacle(self) -> str:
        """The reason for which it cannot go on after its end, for people; empty if it can."""
        searcher = str(self.config.searcher.__struct_config__.tag)
        if self._search is None or (self._is_halving and (self._search.is_over or self.state_at_end != "CANCELED")):
            return f"its searcher, {searcher}, has decided"
        return "" if self._to_revive() else "all its trials are completed"

    def bracket_of(self, request_id: UUID) -> int:
        return self._search.bracket_of(request_id) if self._search else 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    def running(self) -> Iterator[TrialStateMachine]:
        """Returns the trials that have a process, in the order in which the processes began."""
        return iter(list(self._running.values()))

    def trial(self, trial_id: int) -> TrialStateMachine | None:
        return self._by_trial_id.get(trial_id)

    def validation(
        self, request_id: UUID, metrics: Mapping[str, Metric], steps_completed: int | None = None
    ) -> ValidationCompleted:
        """Returns what the searcher reads in a validation report. For a user's own method, the length is the steps."""
        if self._search is not None:
            return self._search.read_report(request_id, metrics)
        metric = to_json(metrics.get(self.config.searcher.metric), "the metric")
        names = () if metric is not None else tuple(sorted(metrics))
        return ValidationCompleted(request_id, metric, steps_completed, names)

    def check_operations(self, operations: Any) -> None:
        """Raises `ValueError` for JSON values that are no operations, or that cannot be carried out here."""
        known = set(self.trials)
        for operation in convert(from_json(operations), list[AnyOperation]):
            match operation:
                case Create(request_id) if request_id in known:
                    raise ValueError(f"trial {request_id} exists already")
                case Create(request_id):
                    known.add(request_id)
                case ValidateAfter(request_id) | Pause(request_id) | Stop(request_id) | Close(request_id):
                    if request_id not in known:
                        raise ValueError(f"there is no trial {request_id}")

    def apply(self, event: Event) -> None:
        self.num_events += 1
        self._apply(event)
        for request_id in self._touched_now:
            self._queue(self.trials[request_id], event.time)
        self._dirty.update(self._touched_now)
        self._touched_now.clear()

    def _apply(self, event: Event) -> None:
        match event:
            case ExperimentBegun():
                self.is_paused = event.is_paused
                self._tell(SearchStarted())
            case ExperimentWanted():
                self._want(event)
            case ExperimentContinued():
                self._revive()
            case TrialWanted():
                self._want_trial(event)
            case SettingsChanged():
                self._change(event)
            case TrialNumbered():
                trial = self.trials[event.request_id]
                trial.trial_id = event.trial_id
                self._by_trial_id[event.trial_id] = trial
                self._tell(TrialCreated(event.request_id))
            case AttemptBegun():
                trial = self._touched(event.request_id)
                trial.begin(event)
                self._running[event.request_id] = trial
            case ValidationRead():
                self._read(event)
            case StopSent():
                self._touched(event.request_id).stop = event
            case KillSent():
                self._touched(event.request_id).kill = event
            case AttemptOver():
                self._end_attempt(event)
            case OperationsPosted():
                self._take_answer(event)
            case ExperimentEnded():
                self.state_at_end, self.reason = event.state, event.reason

    def take_due(self) -> list[Action]:
        """Returns the actions that have become due since the last call, in order."""
        actions = [action for request_id in self._dirty for action in self.trials[request_id].due(self._halt)]
        self._dirty.clear()
        if self.closing is not None and not self._running and not self.is_ended:
            actions.append(Finish(*self._end()))
        return actions

    def outstanding(self) -> list[Action]:
        """Returns the actions that are due after a replay, when some decisions may not have been carried out."""
        self._dirty.update(dict.fromkeys(self.trials))
        return self.take_due()

    def _end(self) -> tuple[FinalState, str]:
        """Returns the state in which the experiment ends, and why: an error if trials reported only other metrics.

        A single trial is compared with none, so that it gets a warning only.
        """
        assert self.closing is not None  # noqa: S101  (asked at its end only)
        is_single = isinstance(self.config.searcher, SingleSearcher)
        if self.closing[0] != "COMPLETED" or not self._reported.lacks_metric or is_single:
            return self.closing
        return "ERROR", self._reported.words

    def is_news(self, metrics: Mapping[str, Any]) -> bool:
        """Returns whether a report that the search does not count tells if trials report its metric at all."""
        return self._reported.is_news(metrics)

    @property
    def _is_halving(self) -> bool:
        return isinstance(self.config.searcher, AsyncHalvingSearcher | AdaptiveAshaSearcher)

    @property
    def _halt(self) -> str:
        """The reason for which no trial may run; empty if trials may run."""
        return "the experiment is paused" if self.is_paused else ""

    def _queue(self, trial: TrialStateMachine, now: float) -> None:
        if trial.is_startable and not self.is_paused and self.closing is None:
            self.waiting.setdefault(trial.request_id, now)
        else:
            self.waiting.pop(trial.request_id, None)

    def _touched(self, request_id: UUID) -> TrialStateMachine:
        self._touched_now[request_id] = None
        return self.trials[request_id]

    def _tell(self, event: SearchEvent) -> None:
        if self._search is not None:
            self._perform(self._search.on(event))
            return
        self.told.append(event)

    def _take_answer(self, event: OperationsPosted) -> None:
        if event.num_events > self.num_answered:
            self.num_answered = event.num_events
            if self.closing is None:
                self._perform(convert(from_json(event.operations), list[AnyOperation]))

    def _perform(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            match operation:
                case Create():
                    self.trials[operation.request_id] = TrialStateMachine(operation)
                    self._touched(operation.request_id)
                case ValidateAfter():
                    trial = self._touched(operation.request_id)
                    trial.order(operation.length)
                case Close():
                    self._close_trial(self._touched(operation.request_id))
                case Pause():
                    self._touched(operation.request_id).ask(Wish.REST)
                case Stop():
                    self._ask(self._touched(operation.request_id), Wish.STOP, "")
                case Progress():
                    self._progress = operation.progress
                case Warn():
                    if operation.kind not in ("metric_missing", "time_missing"):  # `_reported` names all these trials
                        self._warnings.append(operation.message)
                case Shutdown():
                    self._shut_down(operation)

    def _shut_down(self, operation: Shutdown) -> None:
        if operation.failure:
            reason = "its search method gives it up" if self._search is None else "all its trials failed"
            self._close("ERROR", reason, Wish.STOP)
        else:
            self._close("CANCELED" if operation.cancel else "COMPLETED", "", Wish.STOP)

    def _close_trial(self, trial: TrialStateMachine) -> None:
        trial.is_closed = True
        if trial.wish is Wish.REST and not trial.is_running and not trial.is_over:
            trial.close("COMPLETED", "")
            self._closed(trial, None)

    def _want(self, event: ExperimentWanted) -> None:
        match event.state:
            case "ACTIVE" | "PAUSED":
                self.is_paused = event.state == "PAUSED"
                self._touched_now.update(dict.fromkeys(self.trials))
            case "CANCELED":
                self._close("CANCELED", event.by, Wish.CANCEL)
            case "KILLED":
                self._close("CANCELED", event.by, Wish.KILL)

    def _want_trial(self, event: TrialWanted) -> None:
        wish = Wish.CANCEL if event.state == "CANCELED" else Wish.KILL
        self._ask(self._touched(event.request_id), wish, event.by)

    def _ask(self, trial: TrialStateMachine, wish: Wish, why: str) -> None:
        """Asks a trial to end. A trial without a process ends at once."""
        was_over = trial.is_over
        trial.ask(wish, why)
        if was_over or trial.is_running:
            return
        if (verdict := trial.verdict()) is not None:
            trial.close(*verdict)
            self._closed(trial, None if trial.state == "COMPLETED" else ExitedReason.USER_CANCELED)

    def _close(self, state: FinalState, reason: str, wish: Wish) -> None:
        """Ends all trials, and then the experiment. The first state and reason stand, but later kills take effect."""
        if self.is_ended:
            return
        if self.closing is None:
            self.closing = state, reason
        for trial in list(self.trials.values()):
            if not trial.is_over:
                self._touched(trial.request_id)
                self._ask(trial, wish, reason or "the experiment ends")

    def _change(self, event: SettingsChanged) -> None:
        if event.priority is not None:
            self.priority = event.priority
        if event.max_slots is not None:
            self.max_slots = None if event.max_slots == NO_LIMIT else event.max_slots
        if event.place is not None:
            self.place = event.place

    def _read(self, event: ValidationRead) -> None:
        trial = self.trials[event.request_id]
        trial.note_report(event.time)
        self._has_lasted = True
        is_counted = event.is_operation or not trial.lengths
        self._reported.note(event, is_counted=is_counted)
        if not is_counted:
            trial.note_position(event)
            return
        is_heard = trial.read(event)
        if self.closing is None and is_heard:
            self._tell(ValidationCompleted(event.request_id, event.metric, event.length, tuple(event.names)))
        elif self.closing is not None and self.closing[0] == "CANCELED" and not trial.is_told_closed:
            self._unheard.append(event)

    def _end_attempt(self, event: AttemptOver) -> None:
        trial = self._touched(event.request_id)
        del self._running[event.request_id]
        exited = trial.end(event, self.config.max_restarts)
        self._has_lasted |= event.outcome in ("completed", "failed", "invalid_hp") and not event.last_words
        if trial.state == "ERROR" and trial.last_words:
            self._early_deaths[trial.last_words] += 1
            is_alone = not self._has_lasted and not event.is_another_begun
            if is_alone and self._early_deaths[trial.last_words] >= MAX_EARLY_DEATHS:
                self._close("ERROR", f"its scripts end before init(), with the words: {event.last_words}", Wish.CANCEL)
        if trial.is_over:
            self._closed(trial, exited)
        elif trial.is_closed:
            self._close_trial(trial)

    def _closed(self, trial: TrialStateMachine, exited: ExitedReason | None) -> None:
        if self.closing is not None:
            return
        if self._trains_in_vain():
            self._close("ERROR", self._reported.words, Wish.CANCEL)
            return
        if exited is not None:
            self._tell(TrialExitedEarly(trial.request_id, exited))
        trial.is_told_closed = True
        self._tell(TrialClosed(trial.request_id))
        if self._is_revived:
            self._close_revived()

    def _trains_in_vain(self) -> bool:
        """Returns whether no trial of a halving search has what it needs, although some have trained to their ends."""
        if not self._is_halving or self._reported.has_metric:
            return False
        silent = [trial for trial in self.trials.values() if trial.state == "COMPLETED" and trial.other_names]
        return len(silent) >= MAX_SILENT

    def _to_revive(self) -> list[TrialStateMachine]:
        """Returns the trials that a continuation lets go on.

        A halving search has ranked the trials that ended before it was canceled.
        """
        trials = list(self.trials.values())
        if self._is_halving:
            return [trial for trial in trials if not trial.is_told_closed]
        return [trial for trial in trials if trial.state != "COMPLETED" or len(trials) == 1]

    def _revive(self) -> None:
        revived, unheard = self._to_revive(), self._unheard
        self._is_revived, self._unheard = True, []
        self.state_at_end, self.closing, self.reason, self.is_paused = None, None, "", False
        for trial in revived:
            trial.revive()
            self._touched(trial.request_id)
        for event in unheard:
            self._read(event)
        for trial in revived:
            if trial.wish is Wish.STOP:  # the searcher had decided that
                self._ask(trial, Wish.STOP, "")
            elif trial.is_closed:
                self._close_trial(trial)
        self._close_revived()

    def _close_revived(self) -> None:
        """Ends a continued experiment with its last trial, unless its searcher goes on and will end it."""
        states = {trial.state for trial in self.trials.values()}
        if self.closing is None and None not in states and (self._search is None or self._search.is_over):
            state: FinalState = (
                "COMPLETED" if "COMPLETED" in states else "CANCELED" if "ERROR" not in states else "ERROR"
            )
            reasons = [trial.reason for trial in self.trials.values() if trial.state == state != "COMPLETED"]
            self.closing = state, (reasons or [""])[-1]


def _open_search(config: ExperimentConfig) -> Search | None:
    """Returns the search of a built-in method, or None for a user's own method, which posts its operations."""
    if isinstance(config.searcher, CustomSearcher):
        return None
    return Search(config.searcher, config.hyperparameters, config.reproducibility.experiment_seed)
