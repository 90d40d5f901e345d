"""Callbacks: in which order their hooks run, and what is saved of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from pytorch.trials import LineTrial

from core_sdk.pytorch import Batch, Epoch, FitResult, PyTorchCallback, Trainer, init

HOOKS = [name for name in vars(PyTorchCallback) if name.startswith("on_")]


class Recorder(PyTorchCallback):
    """A callback that records and counts its hooks."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.num_batches = 0

    def state_dict(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches, "weights": torch.ones(2)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_batches = state_dict["num_batches"]


def recording(name: str) -> Any:
    def hook(self: Recorder, *args: Any) -> None:
        self.events.append((name.removeprefix("on_"), *args))
        self.num_batches += name == "on_training_batch_end"

    return hook


for each in HOOKS:
    setattr(Recorder, each, recording(each))


def fit(job: str = "job", kind: type[LineTrial] = LineTrial, **arguments: Any) -> tuple[FitResult, Recorder]:
    with init(job_id=job, exp_conf={"searcher": {"metric": "error"}}) as context:
        trial, recorder = kind(context), Recorder()
        trial.callbacks = {"recorder": recorder}
        return Trainer(trial, context).fit(**arguments), recorder


def test_hooks_run_in_their_order() -> None:
    """The hooks of an epoch with a validation and a checkpoint run in the documented order."""
    result, recorder = fit(max_length=Epoch(1), validation_period=Batch(2), checkpoint_policy="all")

    names = [event[0] for event in recorder.events]
    validation = ["validation_start", "validation_epoch_start", "validation_epoch_end", "validation_end"]
    saving = ["checkpoint_save_start", "checkpoint_end", "checkpoint_write_end", "checkpoint_upload_end"]
    assert names == [
        "trial_startup",
        "training_start",
        "training_epoch_start",
        "training_batch_end",
        "training_batch_end",
        "training_workload_end",
        *validation,
        *saving,
        "training_batch_end",
        "training_epoch_end",
        "training_workload_end",
        *validation,
        *saving,
        "trial_shutdown",
    ]
    assert recorder.events[0] == ("trial_startup", 0, None)
    assert recorder.events[2] == ("training_epoch_start", 0)
    assert recorder.events[-2] == ("checkpoint_upload_end", result.latest_checkpoint)


def test_hooks_get_metrics() -> None:
    """Batch hooks get the trial's own metrics, and workload hooks get numbers."""
    result, recorder = fit(max_length=Batch(2))

    got = {event[0]: event[1:] for event in recorder.events}
    epoch_idx, batch_idx, returned = got["training_batch_end"]
    avg_metrics, batch_metrics = got["training_workload_end"]
    assert (epoch_idx, batch_idx) == (0, 1)
    assert isinstance(returned["loss"], torch.Tensor)
    assert batch_metrics[1] == {"loss": returned["loss"].item()}
    assert avg_metrics == {
        "batches": 2,
        "epochs": 0,
        "loss": pytest.approx(sum(each["loss"] for each in batch_metrics) / 2),
    }
    assert [set(output) for output in got["validation_epoch_end"][0]] == [{"error", "mean_x"}] * 3
    assert got["validation_end"][0] == {"batches": 2, "epochs": 0, **result.metrics}


def test_hooks_are_told_how_far_the_training_is() -> None:
    """Hooks see batches and epochs with the metrics, and metrics that they add to a validation are reported."""
    seen: list[dict[str, Any]] = []

    class Watching(PyTorchCallback):
        def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
            seen.append({name: avg_metrics[name] for name in ("batches", "epochs")})

        def on_validation_end(self, metrics: dict[str, Any]) -> None:
            seen.append({name: metrics[name] for name in ("batches", "epochs")})
            metrics["added"] = 1.0

    class Watched(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"watching": Watching()}

    result, _ = fit(kind=Watched, max_length=Epoch(1))

    assert seen == [{"batches": 3, "epochs": 1}] * 2
    assert result.metrics.keys() == {"error", "mean_x", "added"}


def test_a_hook_of_the_start_of_an_epoch_may_take_no_index() -> None:
    """on_training_epoch_start() may be written without the index of the epoch."""
    starts: list[str] = []

    class Old(PyTorchCallback):
        def on_training_epoch_start(self) -> None:  # type: ignore[override]
            starts.append("old")

    class Watched(LineTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"old": Old()}

    fit(kind=Watched, max_length=Epoch(2))

    assert starts == ["old", "old"]


def test_a_callback_gets_its_state_back() -> None:
    """A resumed callback gets its state before the training starts, and the epoch hook is not repeated."""
    first_result, first = fit(max_length=Batch(2))
    _, recorder = fit(max_length=Batch(4), latest_checkpoint=first_result.latest_checkpoint)

    assert (first.num_batches, recorder.num_batches) == (2, 4)
    assert recorder.events[0] == ("trial_startup", 2, first_result.latest_checkpoint)
    assert [event[0] for event in recorder.events[1:4]] == [
        "checkpoint_load_start",
        "training_start",
        "training_batch_end",
    ]
    starts = [event for event in recorder.events if event[0] == "training_epoch_start"]
    assert starts == [("training_epoch_start", 1)]


def test_an_error_is_told_to_callbacks_before_they_are_shut_down() -> None:
    """An error reaches the exception hook before the shutdown hook and is raised by `fit()`."""

    class Failing(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            raise ArithmeticError("broken")

    recorder = Recorder()
    with pytest.raises(ArithmeticError), init() as context:
        trial = Failing(context)
        trial.callbacks = {"recorder": recorder}
        Trainer(trial, context).fit(max_length=Batch(1))

    assert [event[0] for event in recorder.events[-2:]] == ["exception", "trial_shutdown"]
    assert isinstance(recorder.events[-2][1], ArithmeticError)


def test_what_a_callback_adds_to_a_checkpoint_is_there() -> None:
    """Content and files that a callback adds to a checkpoint are there when it is loaded."""

    class Adding(PyTorchCallback):
        loaded: dict[str, Any] = {}

        def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["mine"] = [1, 2]

        def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
            with open(f"{checkpoint_dir}/mine.txt", "w") as file:  # noqa: PTH123
                file.write("hello")

        def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
            self.loaded.update(checkpoint)

    with init() as context:
        trial = LineTrial(context)
        trial.callbacks = {"adding": Adding()}
        trainer = Trainer(trial, context)
        result = trainer.fit(max_length=Batch(1))
        trainer.fit(max_length=Batch(1))
        with context.core_context.checkpoint.restore_path(result.latest_checkpoint or "") as path:
            text = (path / "mine.txt").read_text()

    assert text == "hello"
    assert Adding.loaded["mine"] == [1, 2]


def test_state_that_could_not_be_loaded_again_is_refused_when_it_is_saved() -> None:
    """A state that cannot be loaded again is refused when it is saved, with its place in the checkpoint."""

    class Foreign(PyTorchCallback):
        def state_dict(self) -> dict[str, Any]:
            return {"what": [object()]}

    with pytest.raises(TypeError, match=r"callbacks\['foreign'\]\['what'\]\[0\]"), init() as context:
        trial = LineTrial(context)
        trial.callbacks = {"foreign": Foreign()}
        Trainer(trial, context).fit(max_length=Batch(1))


@pytest.mark.parametrize(
    ("returned", "words"), [([], "returned a list; it must return a dict"), ({"a": 1}, "a int as 'a'")]
)
def test_what_are_no_callbacks_is_refused(returned: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """build_callbacks() must return a dict of callbacks; the error says so."""
    monkeypatch.setattr(LineTrial, "build_callbacks", lambda self: returned)

    with pytest.raises(TypeError, match=words):
        fit(max_length=Batch(1))


class SeesFiles(PyTorchCallback):
    """A callback with a hook that needs the checkpoint's files."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        pass


@pytest.mark.parametrize(
    ("callbacks", "is_background"), [({}, True), ({"sees": SeesFiles()}, False)], ids=["no hook", "a hook"]
)
def test_a_checkpoint_is_written_in_the_background_unless_a_hook_wants_its_files(
    monkeypatch: pytest.MonkeyPatch, callbacks: dict[str, PyTorchCallback], is_background: bool
) -> None:
    """Checkpoints are written in the background unless a hook needs their files."""
    threads, save_file = [], torch.save

    def save(*arguments: Any) -> None:
        threads.append(threading.current_thread())
        save_file(*arguments)

    monkeypatch.setattr(torch, "save", save)
    with init() as context:
        trial = LineTrial(context)
        trial.callbacks = callbacks
        result = Trainer(trial, context).fit(max_length=Batch(2), checkpoint_period=Batch(1))
        assert not context._run.core.checkpoint._saves.is_pending()

    assert result.latest_checkpoint is not None
    assert [thread is not threading.main_thread() for thread in threads] == [is_background] * 2
