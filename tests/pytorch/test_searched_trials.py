"""A search says how long a trial is trained, and may stop it."""

from __future__ import annotations

from typing import Any

import pytest
from pytorch.trials import LineTrial
from stage import execute

from core_sdk import client
from core_sdk._ground.records import STOPPED_BY_SEARCHER, CommandRecord, OperationCompleted
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.operations import post_operations
from core_sdk._home.attempts.starting import AttemptStart, begin_in_experiment, resume
from core_sdk._home.journal import read_records
from core_sdk._machine.slots import Slots
from core_sdk.pytorch import Epoch, FitResult, PyTorchCallback, Trainer, init


class Searched(LineTrial):
    """A trial whose error is the number of batches."""

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": float(self.context.current_train_batch() + 1), "other": 0.0}


class StopAfter(PyTorchCallback):
    """Has a search stop the trial, which notices it within a quarter of a second."""

    def __init__(self, folder: TrialFolder, batch_idx: int, source: str) -> None:
        self.folder = folder
        self.batch_idx = batch_idx
        self.source = source

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]) -> None:
        if batch_idx == self.batch_idx:
            self.folder.request_stop(1, self.source)


class CrashError(Exception):
    pass


class CrashOnceSaved(PyTorchCallback):
    """A callback that raises as soon as a checkpoint is stored."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        raise CrashError


def begin(home: Home, max_length: dict[str, int] | None, hparams: dict[str, float] | None = None) -> AttemptStart:
    """Returns the first attempt of a trial of a search, which this process then executes."""
    Home.create(home.root)
    start = begin_in_experiment(
        home.create_trial(),
        home.new_experiment("search").experiment_id,
        request_id="a",
        hparams=hparams or {},
        seed=17,
        config={"searcher": {"metric": "error", "smaller_is_better": False, "max_length": max_length}},
        command=lambda folder: CommandRecord(argv=["true"], cwd="/", environment={}),
        slots=Slots(()),
    )
    execute(start)
    return start


def fit(*stop: PyTorchCallback, **arguments: Any) -> FitResult:
    with init() as context:
        trial = Searched(context)
        trial.callbacks = dict(enumerate(stop))  # type: ignore[arg-type]
        return Trainer(trial, context).fit(**arguments)


def completed(start: AttemptStart) -> list[tuple[int, Any]]:
    records = read_records(start.folder.journal_path(start.number))
    return [(each.length, each.metric) for each in records if isinstance(each, OperationCompleted)]


def test_a_trial_is_trained_length_by_length(home: Home) -> None:
    """Each length that a search asks for is trained, validated, saved and completed with the metric."""
    start = begin(home, {"batches": 4})
    post_operations(start.folder, [2, 4], is_closed=True)

    result = fit()

    assert (result.reason, result.steps_completed) == ("completed", 4)
    assert completed(start) == [(2, 2.0), (4, 4.0)]
    steps = sorted(each.metadata["steps_completed"] for each in client.get_trial(1).list_checkpoints())
    assert steps == [2, 4]
    assert result.best_checkpoint == result.latest_checkpoint


def test_a_search_has_the_last_word_on_hyperparameters(home: Home) -> None:
    """A search's hyperparameters override the script's, and others of the script are added."""
    begin(home, {"batches": 1}, hparams={"lr": 0.5})

    with init(hparams={"lr": 0.1, "momentum": 0.9}) as context:
        assert context.get_hparams() == {"lr": 0.5, "momentum": 0.9}


def test_lengths_have_the_unit_of_the_configuration(home: Home) -> None:
    """The search's lengths are in the unit of the configuration."""
    start = begin(home, {"epochs": 2})
    post_operations(start.folder, [1], is_closed=True)

    assert fit().steps_completed == 3
    assert completed(start) == [(1, 3.0)]


def test_the_length_of_a_configuration_replaces_that_of_the_script(home: Home) -> None:
    """The configuration's length replaces the script's, so that a script can be searched unchanged."""
    start = begin(home, {"batches": 4})
    post_operations(start.folder, [2, 3], is_closed=True)

    assert fit(max_length=Epoch(100)).steps_completed == 3
    assert completed(start) == [(2, 2.0), (3, 3.0)]


def test_the_length_of_a_configuration_needs_no_search(home: Home) -> None:
    """A configuration's length also applies to a single trial."""
    start = begin(home, {"batches": 3})

    assert fit().steps_completed == 3
    assert completed(start) == [(3, 3.0)]


def test_a_length_that_was_validated_before_a_crash_is_completed_by_the_resume(home: Home) -> None:
    """A length that was validated before a crash is completed by the resume without a new validation."""
    start = begin(home, {"batches": 4})
    post_operations(start.folder, [2, 3], is_closed=True)
    with pytest.raises(CrashError):
        fit(CrashOnceSaved())
    again = resume(start.folder, is_again=True)
    execute(again)

    result = fit()

    assert completed(again) == [(2, 2.0), (3, 3.0)]
    assert result.steps_completed == 3


@pytest.mark.parametrize(
    ("source", "reason"), [(STOPPED_BY_SEARCHER, "searcher"), ("core-sdk trial pause", "preempted")]
)
def test_the_result_says_who_has_stopped_the_trial(home: Home, source: str, reason: str) -> None:
    """The result's reason tells a stop by the searcher from another stop, and the trial is saved."""
    start = begin(home, None)

    result = fit(StopAfter(start.folder, 5, source), max_length=Epoch(1_000_000))

    assert result.reason == reason
    assert result.steps_completed >= 6
    assert client.get_checkpoint(result.latest_checkpoint or "").metadata["steps_completed"] == result.steps_completed
