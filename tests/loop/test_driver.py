"""The order in which a training trains, validates, saves and reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from core_sdk.loop._driver import Driver, Schedule, TrainingProgress
from core_sdk.loop._schedule import Batch, Epoch, Record, TrainUnit


@dataclass(frozen=True)
class Global:
    num_global: int
    is_epoch_end: bool


class Training:
    """Records its calls; an epoch has three batches of 4, 4 and 2 samples."""

    def __init__(self, stops_at: int | None = None, best: Iterable[int] = ()) -> None:
        """The flag is set at the `stops_at`-th look at it, counted from 0; the validations of `best` are the best."""
        self.events: list[str] = []
        self.batches = 0
        self.num_validations = 0
        self.num_looks = 0
        self.stops_at = stops_at
        self.best = set(best)
        self.validation_looks = 0
        self.saved: dict[str, Any] = {}
        self.completed: TrainingProgress

    def should_stop(self) -> bool:
        self.num_looks += 1
        return self.stops_at is not None and self.num_looks > self.stops_at

    def train_batch(self) -> Global:
        self.batches += 1
        self.events.append(f"train {self.batches}")
        return Global(2 if self.batches % 3 == 0 else 4, self.batches % 3 == 0)

    def report(self, progress: float) -> None:
        self.events.append(f"report {progress:.2f}")

    def validate(self) -> bool | None:
        for _ in range(self.validation_looks):
            if self.should_stop():
                return None
        self.events.append("validate")
        self.num_validations += 1
        return self.num_validations in self.best

    def save(self) -> None:
        self.events.append("save")
        self.saved = self.completed.state_dict()


def drive(training: Training, length: TrainUnit, state: dict[str, Any] | None = None, **schedule: Any) -> bool:
    training.completed = TrainingProgress()
    if state is not None:
        training.completed.load_state_dict(state)
        training.batches = training.completed.counters.batches
    return Driver(training, Schedule(**schedule), training.completed).run(length)


def test_the_end_is_reported_validated_and_saved_once() -> None:
    """Without a schedule, the end is reported, validated and saved once."""
    training = Training()

    is_complete = drive(training, Batch(2))

    assert is_complete
    assert training.events == ["train 1", "train 2", "report 1.00", "validate", "save"]


def test_a_batch_at_which_all_is_due_reports_then_validates_then_saves() -> None:
    """A batch at which all is due is reported, validated and saved, in this order and once."""
    training = Training()

    drive(training, Batch(4), validation=Batch(2), checkpoint=Batch(2), reporting=Batch(1))

    assert training.events == [
        "train 1", "report 0.25", "train 2", "report 0.50", "validate", "save",
        "train 3", "report 0.75", "train 4", "report 1.00", "validate", "save",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "batches"),
    [
        (Batch(3), [3, 6]),
        (Batch([1, 4]), [1, 4, 7]),
        (Batch(0), [1, 2, 3, 4, 5, 6]),
        (Epoch(1), [3, 6]),
        (Epoch([2]), [6]),
        (Record(10), [3, 6]),
        (Record(8), [2, 5]),
        (None, []),
    ],
)
def test_units_count_batches_epochs_and_samples(unit: TrainUnit | None, batches: list[int]) -> None:
    """Units count batches, epochs and samples, also if the last batch of an epoch is smaller."""
    training = Training()

    drive(training, Batch(7), checkpoint=unit)

    saved = [index for index, event in enumerate(training.events) if event == "save"]
    trained = [sum(event.startswith("train") for event in training.events[:index]) for index in saved]
    assert trained == sorted({*batches, 7})


@pytest.mark.parametrize(("policy", "num_saves"), [("best", 2), ("all", 3), ("none", 1)])
def test_the_policy_says_which_validations_a_checkpoint_follows(policy: str, num_saves: int) -> None:
    """The policy decides after which validations a checkpoint is saved; the last batch is always saved."""
    training = Training(best=[1])

    drive(training, Batch(3), validation=Batch(1), policy=policy)

    assert training.events.count("save") == num_saves


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    """An unknown policy is refused with the known ones."""
    with pytest.raises(ValueError, match="'sometimes'; it must be one of best, all, none"):
        Schedule(policy="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize("stops_at", range(9))
def test_a_stop_at_any_batch_and_in_any_validation_resumes_to_the_same_order(stops_at: int) -> None:
    """The flag is read before each batch and in the middle of each validation."""
    whole, first, second = Training(), Training(stops_at=stops_at), Training()
    whole.validation_looks = first.validation_looks = second.validation_looks = 1
    drive(whole, Batch(5), validation=Batch(2), policy="none")

    is_complete = drive(first, Batch(5), validation=Batch(2), policy="none")
    if not is_complete:
        assert drive(second, Batch(5), first.saved, validation=Batch(2), policy="none")

    assert is_complete == (stops_at == 8)
    assert first.events[-1] == "save"
    ours, theirs = (
        [event for event in events if not event.startswith(("report", "save"))]
        for events in (first.events + second.events, whole.events)
    )
    assert ours == theirs


def test_a_training_that_is_long_enough_is_not_trained_further() -> None:
    """A training that has reached its length is not trained further."""
    first, second = Training(), Training()
    drive(first, Epoch(1))

    is_complete = drive(second, Batch(3), first.saved)

    assert is_complete
    assert second.events == []


def test_a_greater_length_goes_on_where_the_first_ended() -> None:
    """A greater length continues the training where the first one ended."""
    training = Training()
    drive(training, Batch(1))

    is_complete = Driver(training, Schedule(), training.completed).run(Batch(2))

    assert is_complete
    assert training.events == [
        "train 1",
        "report 1.00",
        "validate",
        "save",
        "train 2",
        "report 1.00",
        "validate",
        "save",
    ]


def test_the_first_validation_comes_before_the_first_batch_of_a_training_that_begins() -> None:
    """The first validation comes before the first batch and is not repeated by a resume."""
    first, second = Training(), Training()

    drive(first, Batch(1), validates_first=True)
    drive(second, Batch(2), first.saved, validates_first=True)

    assert first.events[:2] == ["validate", "train 1"]
    assert second.events[0] == "train 2"
