"""The checkpoints of a trial: what is in them, and how a training takes it back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from core_sdk._version import __version__
from core_sdk.errors import StateMismatchError
from core_sdk.loop import rng
from core_sdk.loop.plain import check_plain
from core_sdk.loop.restoring import load_object
from core_sdk.loop.schedule import Counters
from core_sdk.loop.state import restore_random_numbers
from core_sdk.pytorch._context import PyTorchTrialContext
from core_sdk.pytorch._fitting.callbacks import Callbacks
from core_sdk.pytorch._fitting.data import TrainingData
from core_sdk.pytorch._fitting.sources import entrypoint, imported_sources
from core_sdk.pytorch._trial import PyTorchTrial

STATE_FILE = "state_dict.pth"
LOAD_DATA_FILE = "load_data.json"
CODE_DIRECTORY = "code"


def read_state(context: PyTorchTrialContext, storage_id: str) -> dict[str, Any]:
    """The content of a trial's checkpoint. Collective within a node."""
    with context._core.checkpoint.restore_path(storage_id, selector=STATE_FILE.__eq__) as directory:
        file = directory / STATE_FILE
        if not file.exists():
            raise StateMismatchError(
                f"the checkpoint {storage_id}",
                [f"it has no {STATE_FILE}: no Trainer has stored it"],
                "Pass the checkpoint of a Trainer as latest_checkpoint, or begin a new trial",
            )
        return cast(dict[str, Any], torch.load(file, map_location="cpu", weights_only=True))


def batches_trained(context: PyTorchTrialContext, content: dict[str, Any]) -> int:
    """How many batches this trial had trained when the checkpoint was saved; 0 in a checkpoint of another trial."""
    trainer_state = content["trainer_state"]
    is_own = trainer_state["trial_id"] == context.get_trial_id()
    return cast(int, trainer_state["training"]["driver"]["counters"]["batches"]) if is_own else 0


class Progress(Protocol):
    """How far a training is."""

    @property
    def counters(self) -> Counters: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class TrialState:
    """All that a training must remember, as one checkpoint."""

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        callbacks: Callbacks,
        progress: Progress,
        data: TrainingData,
    ) -> None:
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._progress = progress
        self._data = data

    def save(self) -> str:
        """Collective. Returns the storage id on every rank."""
        content = self._content()
        storage_id = self._context.distributed.channel.broadcast_outcome(lambda: self._store(content), is_patient=True)
        self._callbacks.call("on_checkpoint_upload_end", storage_id)
        return storage_id

    def load(self, content: dict[str, Any]) -> None:
        """Takes back what `save()` stored. Of another trial's checkpoint it takes only what was wrapped."""
        context = self._context
        self._callbacks.call("on_checkpoint_load_start", content)
        self._load_all("model", context.models, content["models_state_dict"])
        self._load_all("optimizer", context.optimizers, content["optimizers_state_dict"])
        self._load_all("learning-rate scheduler", context.lr_schedulers, content["lr_schedulers_state_dict"])
        if context._scaler is not None and "scaler_state_dict" in content:
            context._scaler.load_state_dict(content["scaler_state_dict"])
        self._callbacks.load_state_dict(content["callbacks"])
        trainer_state = content["trainer_state"]
        if trainer_state["trial_id"] != context.get_trial_id():
            return
        self._progress.load_state_dict(trainer_state["training"])
        ranks = trainer_state["ranks"]
        rank = context.distributed.rank
        self._data.load_state_dict(ranks[rank if rank < len(ranks) else 0]["data"])
        restore_random_numbers([each["random"] for each in ranks], rank)

    def _content(self) -> dict[str, Any]:
        """Collective; complete on the chief only."""
        context = self._context
        own = {"random": rng.capture(), "data": self._data.state_dict()}
        content = {
            "models_state_dict": [
                strategy.model_state(model) for model, strategy in zip(context.models, context._strategies, strict=True)
            ],
            "optimizers_state_dict": [optimizer.state_dict() for optimizer in context.optimizers],
            "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers],
            "callbacks": self._callbacks.state_dict(),
            "trainer_state": {
                "trial_id": context.get_trial_id(),
                "training": self._progress.state_dict(),
                "ranks": context.distributed.gather(own),
            },
        }
        if context._scaler is not None:
            content["scaler_state_dict"] = context._scaler.state_dict()
        return content

    def _store(self, content: dict[str, Any]) -> str:
        self._callbacks.call("on_checkpoint_save_start", content)
        for name, value in content.items():
            check_plain(value, name)
        counters = self._progress.counters
        metadata = {
            "steps_completed": counters.batches,
            "epochs": counters.epochs,
            "records": counters.records,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
            "core_sdk_version": __version__,
        }
        with self._context._core.checkpoint.store_path(metadata) as (directory, storage_id):
            torch.save(content, directory / STATE_FILE)
            self._write_definition(directory)
            self._callbacks.call("on_checkpoint_end", str(directory))
            self._callbacks.call("on_checkpoint_write_end", str(directory))
        return storage_id

    def _write_definition(self, directory: Path) -> None:
        """What builds the trial again: its class, its code and its hyperparameters."""
        kind = type(self._trial)
        load_data = {
            "trial_type": "PyTorchTrial",
            "experiment_config": self._context._exp_conf,
            "hparams": self._context._hparams,
            "trial_cls_spec": entrypoint(kind),
            "is_trainer": True,
        }
        (directory / LOAD_DATA_FILE).write_text(json.dumps(load_data, default=str))
        for name, source in imported_sources(kind).items():
            target = directory / CODE_DIRECTORY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def _load_all(self, what: str, targets: list[Any], states: list[Any]) -> None:
        if len(targets) != len(states):
            raise StateMismatchError(
                f"the {what}s of the trial",
                [f"there are {len(states)} in the checkpoint and {len(targets)} here"],
                "Wrap the same ones in the same order, or begin a new trial",
            )
        for index, (target, state) in enumerate(zip(targets, states, strict=True)):
            load_object(what if len(targets) == 1 else f"{what} {index}", target, state)
