"""Search methods of a user's own."""

from __future__ import annotations

import inspect
import json
import math
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from core_sdk import search
from core_sdk.search import (
    AnyOperation,
    Close,
    Create,
    CustomSearch,
    Event,
    ExitedReason,
    Operation,
    Pause,
    Progress,
    SearcherState,
    SearchMethod,
    SearchStarted,
    Shutdown,
    TrialClosed,
    TrialCreated,
    TrialExitedEarly,
    TrialProgressed,
    ValidateAfter,
    ValidationCompleted,
)
from core_sdk.search.simulation import TrialExit, simulate
from population import PopulationBasedTraining


class Scripted(SearchMethod):
    """Answers as its test says, and notes how it was called."""

    def __init__(self, *answers: list[Operation]) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, ...]] = []

    def _answer(self, *call: Any) -> list[Operation]:
        self.calls.append(call)
        return self.answers.pop(0) if self.answers else []

    def initial_operations(self, searcher_state: SearcherState) -> list[Operation]:
        return self._answer("initial_operations")

    def on_trial_created(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        return self._answer("on_trial_created", request_id)

    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: UUID, metric: Any, train_length: int
    ) -> list[Operation]:
        return self._answer("on_validation_completed", request_id, metric, train_length)

    def on_trial_closed(self, searcher_state: SearcherState, request_id: UUID) -> list[Operation]:
        return self._answer("on_trial_closed", request_id)

    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: UUID, exited_reason: ExitedReason
    ) -> list[Operation]:
        return self._answer("on_trial_exited_early", request_id, exited_reason)

    def progress(self, searcher_state: SearcherState) -> float:
        return len(searcher_state.trials_closed) / 10

    def save_method_state(self, path: Path) -> None:
        (path / "calls").write_text(str(len(self.calls)))

    def load_method_state(self, path: Path) -> None:
        self.calls = [()] * int((path / "calls").read_text())


A, B = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Create", ["request_id", "hparams", "checkpoint"]),
        ("ValidateAfter", ["request_id", "length"]),
        ("Close", ["request_id"]),
        ("Progress", ["progress"]),
        ("Shutdown", ["cancel", "failure"]),
        ("SearchMethod.initial_operations", ["searcher_state"]),
        ("SearchMethod.on_trial_created", ["searcher_state", "request_id"]),
        ("SearchMethod.on_validation_completed", ["searcher_state", "request_id", "metric", "train_length"]),
        ("SearchMethod.on_trial_closed", ["searcher_state", "request_id"]),
        ("SearchMethod.on_trial_exited_early", ["searcher_state", "request_id", "exited_reason"]),
        ("SearchMethod.progress", ["searcher_state"]),
        ("SearchMethod.save_method_state", ["path"]),
        ("SearchMethod.load_method_state", ["path"]),
        ("SearchMethod.save", ["searcher_state", "path", "experiment_id"]),
        ("SearchMethod.load", ["path"]),
    ],
)
def test_names_and_arguments_are_those_of_the_predecessor(name: str, parameters: list[str]) -> None:
    """Names and parameters come from the predecessor, so that its search methods need only another import."""
    found: Any = search
    for part in name.split("."):
        found = getattr(found, part)

    assert [one for one in inspect.signature(found).parameters if one != "self"] == parameters


def test_a_method_hears_of_its_trials() -> None:
    """The state is up to date when a method is called about a trial, and events that may change progress report it."""
    method = Scripted([Create(A, {"lr": 0.1}), ValidateAfter(A, 10)])
    custom = CustomSearch(method)

    assert custom.on(SearchStarted()) == [Create(A, {"lr": 0.1}), ValidateAfter(A, 10)]
    assert custom.on(TrialCreated(A)) == []
    assert custom.on(TrialProgressed(A, 0.5)) == [Progress(0.0)]
    assert custom.state.trial_progress == {A: 5.0}
    assert custom.on(ValidationCompleted(A, {"$float": "NaN"}, 10)) == [Progress(0.0), Pause(A)]
    assert custom.on(TrialExitedEarly(A, ExitedReason.ERRORED)) == [Progress(0.0)]
    assert custom.on(TrialClosed(A)) == [Progress(0.1)]

    names = [call[0] for call in method.calls]
    assert names == [
        "initial_operations",
        "on_trial_created",
        "on_validation_completed",
        "on_trial_exited_early",
        "on_trial_closed",
    ]
    assert method.calls[2][1] == A
    assert math.isnan(method.calls[2][2])
    assert method.calls[2][3] == 10
    assert custom.state.failures == custom.state.trials_created == custom.state.trials_closed == {A}


def test_nothing_is_heard_twice_nor_after_the_shutdown() -> None:
    """Repeated events, and all events after the shutdown, are ignored."""
    method = Scripted([Create(A, {})], [], [], [Shutdown()])
    custom = CustomSearch(method)
    events: list[Event] = [
        SearchStarted(),
        TrialCreated(A),
        TrialExitedEarly(A, ExitedReason.INVALID_HP),
        TrialClosed(A),
    ]
    for event in events:
        custom.on(event)

    assert [custom.on(event) for event in events] == [[], [], [], []]
    assert custom.state.experiment_completed


def test_what_a_method_wants_of_ended_trials_is_dropped() -> None:
    """An operation for a trial that has ended in the meantime is dropped from the method's answer."""
    custom = CustomSearch(Scripted([Create(A, {}), Create(B, {})], [], [Close(A), ValidateAfter(A, 2), Close(B)]))
    custom.on(SearchStarted())
    custom.on(TrialClosed(A))

    assert Close(A) not in custom.on(TrialCreated(B))


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ([Create(A, {})] * 2, ValueError, "a second time"),
        ([Close(B)], ValueError, "has not created"),
        (["stop"], TypeError, "'stop', which is no operation"),
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_refused(
    answer: list[Any], error: type[Exception], message: str
) -> None:
    """An answer that cannot be carried out is refused with an error that says what is wrong with it."""
    with pytest.raises(error, match=message):
        CustomSearch(Scripted(answer)).on(SearchStarted())


def test_a_checkpoint_may_be_given_as_an_object() -> None:
    """Create() accepts a checkpoint object in place of its UUID, as the predecessor's `Create` does."""

    class Checkpoint:
        uuid = "abc"

    assert Create(A, {}, Checkpoint()).checkpoint == "abc"
    assert Create(A, {}, "abc") == Create(A, {}, Checkpoint())


def test_operations_survive_json() -> None:
    """Operations are the same after a round trip through JSON, in which the driver stores them."""
    operations = [Create(A, {"lr": 0.1}, "abc"), ValidateAfter(A, 3), Close(A), Progress(0.5), Shutdown(cancel=True)]

    encoded = msgspec.json.encode(operations)

    assert msgspec.json.decode(encoded, type=list[AnyOperation]) == operations


def test_a_state_is_saved_with_that_of_its_method(tmp_path: Path) -> None:
    """save() and load() of a method keep the searcher's state, as the predecessor's do."""
    state = SearcherState({A}, {A: 1.0, B: 2.0}, {A}, {A, B}, last_event_id=7)

    Scripted().save(state, tmp_path, experiment_id=3)
    loaded, experiment_id = Scripted().load(tmp_path)

    assert experiment_id == loaded.experiment_id == 3
    state.experiment_id = 3
    assert loaded == state


def population(seed: int = 0) -> PopulationBasedTraining:
    return PopulationBasedTraining({"lr": (1e-4, 1e-1)}, population=8, num_rounds=10, round_length=5, seed=seed)


class Trainings:
    """A training whose loss falls faster the nearer `lr` is to 0.01, and which goes on from checkpoints."""

    def __init__(self) -> None:
        self.losses: dict[str, float] = {}

    def __call__(self, create: Create, length: int) -> Any:
        loss = self.losses.get(create.checkpoint, 1.0)
        speed = 0.02 / (1 + abs(math.log10(create.hparams["lr"] / 0.01)))
        loss *= (1 - speed) ** length
        checkpoint = f"{create.request_id} after {length}"
        self.losses[checkpoint] = loss
        return {"loss": loss, "checkpoint": checkpoint}


def test_a_population_exploits_its_best_members() -> None:
    """A population that continues its best members reaches a best loss at least as low as one that does not."""
    trainings = Trainings()
    simulation = simulate(CustomSearch(population()), trainings, validations=[])
    alone = simulate(
        CustomSearch(population()), lambda create, length: {"loss": 0.0, "checkpoint": None}, validations=[]
    )

    exploiting = [trial for trial in simulation.trials if trial.create.checkpoint is not None]
    from_the_start = [0.02 / (1 + abs(math.log10(trial.create.hparams["lr"] / 0.01))) for trial in alone.trials[:8]]
    best_alone = (1 - max(from_the_start)) ** 50
    best = min(trial.metric["loss"] for trial in simulation.trials)
    assert simulation.shutdown == Shutdown()
    assert exploiting
    assert best <= best_alone
    assert all(trial.create.checkpoint in trainings.losses for trial in exploiting)


def test_a_custom_search_goes_on_from_its_files(tmp_path: Path) -> None:
    """A population that is loaded again after every event decides as one that was not disturbed."""

    def curve(create: Create, length: int) -> Any:
        if random.Random(create.request_id.int + length).random() < 0.05:
            raise TrialExit(ExitedReason.ERRORED)
        return trainings(create, length)

    class Reloaded:
        def on(self, event: Event) -> list[Operation]:
            custom = CustomSearch(population())
            if (tmp_path / "trials.json").exists():
                custom.load(tmp_path)
            operations = custom.on(event)
            custom.save(tmp_path)
            log.append(operations)
            return operations

    trainings = Trainings()
    log: list[list[Operation]] = []
    simulate(Reloaded(), curve, validations=[])
    reloaded, log = log, []
    undisturbed = CustomSearch(population())

    class Logged:
        def on(self, event: Event) -> list[Operation]:
            log.append(undisturbed.on(event))
            return log[-1]

    trainings = Trainings()
    simulation = simulate(Logged(), curve, validations=[])

    assert simulation.shutdown is not None
    assert reloaded == log
    assert json.loads((tmp_path / "state").read_text())["experimentCompleted"]
