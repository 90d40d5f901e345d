"""An experiment is the outcome of its events."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from promises import promise

from core_sdk._execution.experiments._actions import AskToStop, Finish, Kill
from core_sdk._execution.experiments._trial import TrialStateMachine
from core_sdk._execution.experiments.experiment import MAX_EARLY_DEATHS, MAX_SILENT, ExperimentStateMachine
from core_sdk._ground.config import ExperimentConfig, load
from core_sdk._ground.records import (
    FORMAT,
    STOPPED_BY_SEARCHER,
    AttemptBegun,
    AttemptOutcome,
    AttemptOver,
    Event,
    ExperimentBegun,
    ExperimentContinued,
    ExperimentEnded,
    ExperimentWanted,
    KillSent,
    StopSent,
    TrialNumbered,
    TrialWanted,
    ValidationRead,
)
from core_sdk._ground.records._events import Wish

SEARCHERS = {
    "single": "{name: single, metric: loss}",
    "random": "{name: random, metric: loss, max_trials: 6, max_concurrent_trials: 2}",
    "grid": "{name: grid, metric: loss, max_concurrent_trials: 3}",
    "stopping": "{name: async_halving, metric: loss, max_trials: 9, num_rungs: 3, divisor: 2, time_metric: epochs, "
    "max_time: 8, max_concurrent_trials: 4}",
    "promotion": "{name: adaptive_asha, metric: loss, max_trials: 9, max_length: {epochs: 8}, divisor: 2, "
    "max_rungs: 3, max_concurrent_trials: 4}",
}


def config(searcher: str, **values: Any) -> ExperimentConfig:
    text = (
        f"entrypoint: python train.py\nsearcher: {SEARCHERS[searcher]}\n"
        "hyperparameters: {lr: {type: double, minval: 0, maxval: 1, count: 5}}\n"
        "reproducibility: {experiment_seed: 3}\n"
    )
    return load(text, source="test", overrides=[f"{key}={value}" for key, value in values.items()]).config


class World:
    """Plays the master and the trials: what an experiment wants is done, in random order."""

    def __init__(
        self,
        config: ExperimentConfig,
        seed: int = 0,
        num_slots: int = 3,
        has_metric: Callable[[TrialStateMachine, int], bool] = lambda trial, epoch: True,
    ) -> None:
        """`has_metric` says whether the trial reports the searcher's metric in this epoch, or only another one."""
        self._has_metric = has_metric
        self.config = config
        self.events: list[Event] = []
        self.experiment = ExperimentStateMachine(1, config)
        self.random = random.Random(seed)
        self.num_slots = num_slots
        self.epochs: dict[Any, int] = {}
        self._trial_ids = itertools.count(1)
        self.record(ExperimentBegun(time=0.0, format=FORMAT))

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.experiment.apply(event)

    def want(self, state: Wish) -> None:
        self.record(ExperimentWanted(time=0.0, state=state, by="a test"))

    def act(self) -> None:
        """Does what is due, and starts what waits."""
        for action in self.experiment.take_due():
            match action:
                case AskToStop(request_id, reason):
                    attempt = self.experiment.trials[request_id].last_attempt
                    self.record(StopSent(time=0.0, request_id=request_id, attempt=attempt, reason=reason, kill_at=9e9))
                case Kill(request_id, reason):
                    attempt = self.experiment.trials[request_id].last_attempt
                    self.record(KillSent(time=0.0, request_id=request_id, attempt=attempt, reason=reason))
                case Finish(state, reason):
                    self.record(ExperimentEnded(time=0.0, state=state, reason=reason))
        while self.experiment.waiting and self.experiment.num_running < self.num_slots:
            self.start(self.experiment.trials[next(iter(self.experiment.waiting))])

    def start(self, trial: TrialStateMachine) -> None:
        if trial.trial_id is None:
            self.record(TrialNumbered(time=0.0, request_id=trial.request_id, trial_id=next(self._trial_ids)))
        number = trial.last_attempt + 1
        self.record(AttemptBegun(time=0.0, request_id=trial.request_id, attempt=number, slots=[0], boot=""))
        self.experiment.take_due()

    def step(self) -> None:
        """Lets one of the running trials report, complete what it was asked for, or end."""
        trial = self.random.choice(list(self.experiment.running()))
        if trial.kill is not None:
            self.end(trial, "failed", "killed")
        elif trial.stop is not None and self.random.random() < 0.5:
            self.end(trial, "paused")
        elif trial.lengths:
            self._complete(trial)
        else:
            self._validate(trial)

    def end(self, trial: TrialStateMachine, outcome: AttemptOutcome, reason: str = "", **values: Any) -> None:
        over = AttemptOver(
            time=0.0, request_id=trial.request_id, attempt=trial.last_attempt, outcome=outcome, reason=reason, **values
        )
        self.record(over)

    def _complete(self, trial: TrialStateMachine) -> None:
        done = self.epochs.get(trial.request_id, 0)
        following = [length for length in trial.lengths if length > done]
        if not following:
            if trial.is_closed:
                self.end(trial, "completed")
            return
        self.epochs[trial.request_id] = following[0]
        self._report(trial, following[0], is_operation=True)

    def _validate(self, trial: TrialStateMachine) -> None:
        epoch = self.epochs[trial.request_id] = self.epochs.get(trial.request_id, 0) + 1
        self._report(trial, epoch)
        if epoch >= 8:
            self.end(trial, "completed")

    def _report(self, trial: TrialStateMachine, length: int, is_operation: bool = False) -> None:
        has_metric = is_operation or self._has_metric(trial, length)
        self.record(
            ValidationRead(
                time=0.0,
                request_id=trial.request_id,
                attempt=trial.last_attempt,
                offset=length,
                metric=trial.hparams["lr"] + 1 / length if has_metric else None,
                length=length,
                is_operation=is_operation,
                names=[] if has_metric else ["accuracy", "epochs"],
            )
        )

    def run(self, most_steps: int = 5000) -> Iterator[None]:
        """Yields after each step, until the experiment has ended."""
        for _ in range(most_steps):
            self.act()
            if self.experiment.is_ended:
                return
            if self.experiment.num_running:
                self.step()
            yield
        raise AssertionError(f"it does not end: {self.experiment.state}")


def view(experiment: ExperimentStateMachine) -> object:
    """Returns all that can be seen of the experiment."""
    trials = [
        (trial.request_id, trial.hparams, trial.trial_id, trial.wish, trial.attempt, trial.state, trial.lengths)
        for trial in experiment.trials.values()
    ]
    return experiment.state, experiment.progress, list(experiment.waiting), trials


def replayed(world: World) -> ExperimentStateMachine:
    experiment = ExperimentStateMachine(1, world.config)
    for event in world.events:
        experiment.apply(event)
    experiment.outstanding()
    return experiment


@pytest.mark.parametrize("searcher", SEARCHERS)
@pytest.mark.parametrize("seed", range(3))
def test_an_experiment_ends_well(searcher: str, seed: int) -> None:
    """An experiment completes with all its trials, in whatever order they report."""
    world = World(config(searcher), seed)

    for _ in world.run():
        pass

    assert world.experiment.state == "COMPLETED"
    assert {trial.state for trial in world.experiment.trials.values()} == {"COMPLETED"}


@promise("decisions-recorded")
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_the_same_events_give_the_same_state(searcher: str) -> None:
    """After each event, a replay of all events gives the same state and the same pending actions."""
    world = World(config(searcher))

    for _ in world.run():
        world.act()
        assert view(replayed(world)) == view(world.experiment)


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_paused_experiment_stands_still_and_goes_on(searcher: str) -> None:
    """A paused experiment stops its trials and starts none until it is activated."""
    world = World(config(searcher))
    steps = world.run()
    for _ in itertools.islice(steps, 3):
        pass

    world.want("PAUSED")
    for _ in itertools.islice(steps, 200):
        pass
    at_rest = world.experiment.state, world.experiment.num_running, len(world.experiment.waiting)
    world.want("ACTIVE")
    for _ in steps:
        pass

    assert at_rest == ("PAUSED", 0, 0)
    assert world.experiment.state == "COMPLETED"


@pytest.mark.parametrize("wish", ["CANCELED", "KILLED"])
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_canceled_experiment_ends(searcher: str, wish: Wish) -> None:
    """A canceled experiment starts no further attempts, and its trials end as completed or canceled."""
    world = World(config(searcher))
    steps = world.run()
    for _ in itertools.islice(steps, 3):
        pass
    before = len([event for event in world.events if isinstance(event, AttemptBegun)])

    world.want(wish)
    for _ in steps:
        pass

    assert world.experiment.state == "CANCELED"
    assert {trial.state for trial in world.experiment.trials.values()} <= {"COMPLETED", "CANCELED"}
    assert len([event for event in world.events if isinstance(event, AttemptBegun)]) == before


def test_a_kill_reaches_what_was_only_asked_to_stop() -> None:
    """A kill is carried out at once, also for a trial that was already asked to stop."""
    world = World(config("single"))
    world.act()
    world.want("CANCELED")
    world.act()

    world.want("KILLED")

    [trial] = world.experiment.running()
    assert world.experiment.take_due() == [Kill(trial.request_id, "a test")]


def test_a_failed_trial_is_run_again_a_limited_number_of_times() -> None:
    """`max_restarts` is the number of runs beyond the first; lost attempts do not count."""
    world = World(config("single", max_restarts=1))
    outcomes: list[AttemptOutcome] = ["failed", "lost", "failed"]
    states = []

    for outcome in outcomes:
        world.act()
        [trial] = world.experiment.running()
        world.end(trial, outcome, "out of luck")
        states.append(trial.state)
    world.act()

    assert states == [None, None, "ERROR"]
    assert (world.experiment.state, world.experiment.reason) == ("ERROR", "all its trials failed")


def test_a_hopeless_failure_is_not_repeated() -> None:
    """A failure classified as hopeless, as by a pattern with `cancel_retries`, is not retried."""
    world = World(config("single"))
    world.act()
    [trial] = world.experiment.running()

    world.end(trial, "hopeless", "out of memory")
    world.act()

    assert world.experiment.state == "ERROR"


@pytest.mark.parametrize(
    ("last_words", "num_attempts"),
    [
        (["No module named 'a'"] * 9, 2),
        (["port 1 is taken", "port 2 is taken"], 2),
        (["", "", "", ""], 4),
        (["a", "b", "a", "b"], 4),
        (["a", "", "a", "a"], 4),
    ],
)
def test_what_fails_twice_alike_before_init_is_not_tried_again(last_words: list[str], num_attempts: int) -> None:
    """A trial that fails twice with the same words, except for numbers, before init() is not tried again."""
    world = World(config("single", max_restarts=3))

    for words in last_words:
        world.act()
        for trial in list(world.experiment.running()):
            world.end(trial, "failed", "it exited with status 1", last_words=words, is_another_begun=False)
    world.act()

    [trial] = world.experiment.trials.values()
    assert (trial.state, trial.num_attempts) == ("ERROR", num_attempts)
    assert num_attempts != 2 or last_words[1] in trial.reason


@pytest.mark.parametrize(("is_another_begun", "num_failed"), [(False, MAX_EARLY_DEATHS), (True, 6)])
def test_a_search_whose_scripts_all_fail_alike_ends_soon(is_another_begun: bool, num_failed: int) -> None:
    """A search whose first trials all fail alike before init() ends early, and its reason has their words."""
    world = World(config("random"))
    words = "No module named 'torchvision'"

    for _ in range(40):
        world.act()
        for trial in list(world.experiment.running())[:1]:
            world.end(trial, "failed", last_words=words, is_another_begun=is_another_begun)

    states = [trial.state for trial in world.experiment.trials.values()]
    assert (world.experiment.state, states.count("ERROR")) == ("ERROR", num_failed)
    assert (words in world.experiment.reason) is not is_another_begun


@promise("stopped-trial-unheard")
def test_what_a_stopped_trial_still_reports_never_reaches_the_searcher() -> None:
    """Reports of a stopped trial never reach the searcher."""
    world = World(config("stopping"), num_slots=9)
    for _ in world.run():
        stopped = [trial for trial in world.experiment.running() if trial.stop is not None]
        if stopped:
            break
    progress = world.experiment.progress

    for length in (7, 8):
        world._report(stopped[0], length)

    assert world.experiment.progress == progress
    assert stopped[0].metric != stopped[0].hparams["lr"] + 1 / 8


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("searcher", ["stopping", "random"])
def test_a_trial_that_never_reports_the_metric_ends_alone(searcher: str, seed: int) -> None:
    """A trial that never reports the metric is ended, if trials are compared, and named; other trials go on."""
    world = World(config(searcher), seed, num_slots=9, has_metric=lambda trial, _: trial.trial_id != 2)

    for _ in world.run():
        pass

    silent, [warning] = world.experiment.trial(2), world.experiment.warnings
    assert silent is not None and (world.experiment.state, silent.state) == ("COMPLETED", "COMPLETED")
    assert {trial.state for trial in world.experiment.trials.values()} == {"COMPLETED"}
    assert warning.startswith("trial 2 has reported accuracy, epochs, but never a number for 'loss'")
    if searcher == "stopping" and max(world.epochs.values()) == 8:
        assert world.epochs[silent.request_id] < 8 or silent.reason == STOPPED_BY_SEARCHER


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("searcher", ["stopping", "random"])
def test_a_metric_that_is_not_in_every_report_is_no_failure(searcher: str, seed: int) -> None:
    """A metric that is reported late, or not in every report, is neither a failure nor warned about."""
    late = World(config(searcher), seed, has_metric=lambda _, epoch: epoch >= 4)
    between = World(config(searcher), seed, has_metric=lambda _, epoch: epoch in (1, 8))

    for world in (late, between):
        for _ in world.run():
            pass

    assert [world.experiment.state for world in (late, between)] == ["COMPLETED", "COMPLETED"]
    assert [world.experiment.warnings for world in (late, between)] == [[], []]


@pytest.mark.parametrize("names", [["accuracy", "epochs"], ["accuracy", "loss"]])
def test_a_search_by_comparison_ends_if_it_can_compare_nothing(names: list[str]) -> None:
    """A comparing search ends after some trials without its metric, and says why."""
    world = World(config("stopping"))
    metric = 0.5 if "loss" in names else None

    for _ in range(40):
        world.act()
        for trial in list(world.experiment.running())[:1]:
            read = ValidationRead(
                time=0.0, request_id=trial.request_id, attempt=1, offset=1, metric=metric, names=names
            )
            world.record(read)
            world.end(trial, "completed" if trial.stop is None else "paused")

    experiment = world.experiment
    missing = "time metric, 'epochs'" if "loss" in names else "metric, 'loss'"
    assert experiment.state == "ERROR"
    assert missing in experiment.reason and ", ".join(names) in experiment.reason
    assert [trial.state for trial in experiment.trials.values()].count("COMPLETED") == MAX_SILENT


@pytest.mark.parametrize(
    ("times", "is_told"),
    [([1, 2, 5.9], False), ([1, 2, 6], True), ([60, 60.1], False), ([], False)],
    ids=["until it has heard", "long after", "read late", "silent"],
)
def test_a_trial_that_trains_on_after_its_stop_is_named(times: list[float], is_told: bool) -> None:
    """A trial that trains on long after its stop is named in a warning; reports soon after the stop are not."""
    world = World(config("random"))
    world.act()
    trial = world.experiment.trial(2)
    assert trial is not None
    asked: dict[str, Any] = {"request_id": trial.request_id, "attempt": 1}

    world.record(StopSent(time=0.0, reason=STOPPED_BY_SEARCHER, kill_at=9e9, **asked))
    for time in times:
        world.record(ValidationRead(time=time, offset=0, metric=0.5, **asked))
    world.record(AttemptOver(time=99.0, outcome="completed", **asked))

    words = "trial 2 trained on after a stop was asked for (stopped by the searcher). A script should end once"
    assert [warning.startswith(words) for warning in world.experiment.warnings] == [True] * is_told


def test_a_single_trial_needs_no_metric() -> None:
    """A single trial that reports no metric completes with a warning, since nothing is compared."""
    world = World(config("single"), has_metric=lambda trial, epoch: False)

    for _ in world.run():
        pass

    assert (world.experiment.state, world.experiment.reason) == ("COMPLETED", "")
    assert "never a number for 'loss'" in world.experiment.warnings[0]


def world_that_reports(name: str) -> World:
    """Returns a grid of which each trial reports once, the metric of this name, and ends well."""
    world = World(config("grid"))
    for _ in range(100):
        world.act()
        for trial in list(world.experiment.running()):
            metric, names = (0.5, []) if name == "loss" else (None, [name])
            read = ValidationRead(
                time=0.0, request_id=trial.request_id, attempt=1, offset=1, metric=metric, length=1, names=names
            )
            world.record(read)
            world.end(trial, "completed")
    return world


def test_a_metric_that_no_trial_has_reported_is_an_error_at_the_end() -> None:
    """A search whose metric no trial has reported ends in an error with its name and what was reported instead."""
    right, wrong = world_that_reports("loss"), world_that_reports("losss")

    assert (right.experiment.state, right.experiment.reason) == ("COMPLETED", "")
    assert wrong.experiment.state == "ERROR"
    assert wrong.experiment.reason == "no trial has reported the searcher's metric, 'loss', only losss"
    assert {trial.state for trial in wrong.experiment.trials.values()} == {"COMPLETED"}


def test_a_trial_can_be_killed_alone() -> None:
    """When one trial is killed, the search goes on and completes."""
    world = World(config("random"))
    world.act()
    trial = next(world.experiment.running())

    world.record(TrialWanted(time=0.0, request_id=trial.request_id, state="KILLED", by="somebody"))
    for _ in world.run():
        pass

    assert (trial.state, trial.reason) == ("CANCELED", "somebody")
    assert world.experiment.state == "COMPLETED"


@pytest.mark.parametrize("wish", ["CANCELED", "KILLED"])
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_an_experiment_that_somebody_has_ended_can_be_continued(searcher: str, wish: Wish) -> None:
    """A canceled or killed experiment can be continued from any point, and its replay has the same state."""
    for num_steps in range(1, 60, 6):
        world = World(config(searcher), seed=num_steps)
        for _ in itertools.islice(world.run(), num_steps):
            pass
        if world.experiment.is_ended:
            break
        world.want(wish)
        for _ in world.run():
            pass
        assert (world.experiment.state, world.experiment.obstacle) == ("CANCELED", "")

        world.record(ExperimentContinued(time=0.0))
        for _ in world.run():
            world.act()
            assert view(replayed(world)) == view(world.experiment)

        assert world.experiment.state == "COMPLETED"
        assert {trial.state for trial in world.experiment.trials.values()} == {"COMPLETED"}


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_a_completed_experiment_has_nothing_to_continue(searcher: str) -> None:
    """Except the trial of a single one. One that is continued nevertheless ends at once."""
    world = World(config(searcher))
    for _ in world.run():
        pass
    obstacle = world.experiment.obstacle

    world.record(ExperimentContinued(time=0.0))
    for _ in world.run():
        pass

    assert bool(obstacle) is (searcher != "single")
    assert world.experiment.state == "COMPLETED"


@pytest.mark.parametrize("metric", [math.nan, -math.inf, 0.5])
def test_every_metric_is_the_same_to_the_searcher_after_the_record(metric: float) -> None:
    """JSON has no NaN, and a trial that diverges is given up after a restart of the master as before it."""
    world = World(config("stopping"))
    world.act()
    trial = next(world.experiment.running())
    read = world.experiment.validation(trial.request_id, {"loss": metric, "epochs": 2})
    event = ValidationRead(
        time=0.0, request_id=trial.request_id, attempt=1, offset=1, metric=read.metric, length=read.length
    )

    world.record(msgspec.json.decode(msgspec.json.encode(event), type=ValidationRead))

    assert world.experiment.warnings == []
    assert any(isinstance(one, AskToStop) for one in world.experiment.take_due()) is not math.isfinite(metric)
