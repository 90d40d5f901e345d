"""The checkpoints of a trial: writes and reads their content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import torch

from core_sdk._version import __version__
from core_sdk.errors import StateMismatchError
from core_sdk.loop import rng
from core_sdk.loop.plain import check_plain
from core_sdk.loop.restoring import load_object
from core_sdk.loop.schedule import Counters
from core_sdk.loop.state import SHARDED_FILES, restore_random_numbers
from core_sdk.pytorch._context import PyTorchTrialContext, TrialContext
from core_sdk.pytorch._fitting.callbacks import Callbacks
from core_sdk.pytorch._fitting.data import Data
from core_sdk.pytorch._fitting.gradients import (
    GRADIENT_FILES,
    pending_gradients,
    read_gradients,
    restore_gradients,
    write_gradients,
)
from core_sdk.pytorch._fitting.sources import entrypoint, imported_sources
from core_sdk.pytorch._trial import PyTorchTrial

STATE_FILE = "state_dict.pth"
LOAD_DATA_FILE = "load_data.json"
CODE_DIRECTORY = "code"


def read_state(context: PyTorchTrialContext, storage_id: str) -> dict[str, Any]:
    """Reads the content of a trial's checkpoint, for the models and optimizers of the context.

    Collective within a node.
    """
    selected = (STATE_FILE, SHARDED_FILES, GRADIENT_FILES)
    with context._core.checkpoint.restore_path(
        storage_id, selector=lambda name: name.startswith(selected)
    ) as directory:
        advice = "Pass the checkpoint of a Trainer as latest_checkpoint, or begin a new trial"
        content = read_content(context, checked_file(directory, STATE_FILE, storage_id, advice))
        if (gradients := read_gradients(context, directory)) is not None:
            content["gradients"] = gradients
        return content


def checked_file(directory: Path, name: str, checkpoint: str, advice: str) -> Path:
    """Returns the path of a file that each Trainer's checkpoint has. Raises `StateMismatchError` if it is missing."""
    file = directory / name
    if not file.exists():
        raise StateMismatchError("a trial", [f"{checkpoint} has no {name}: no Trainer has stored it"], advice)
    return file


def read_content(context: PyTorchTrialContext, file: Path, **options: Any) -> dict[str, Any]:
    """Returns the content of a checkpoint's state file, with the tensors of the files beside it.

    `options` are those of `torch.load`.
    """
    content = cast(dict[str, Any], torch.load(file, **{"map_location": "cpu", "weights_only": True, **options}))
    if is_sharded(context) or any(file.parent.glob(SHARDED_FILES + "*")):
        from core_sdk.loop.sharded_tensors import put_back  # slow to import

        is_training = context._core_context is not None
        wanted = () if is_training else ("models_state_dict",)
        content = put_back(content, file.parent, tensors_of(context), within=wanted)
    return content


def is_sharded(context: PyTorchTrialContext) -> bool:
    """Whether a model's tensors are spread over the ranks, so that each of them writes its parts."""
    return any(strategy.is_sharding for strategy in context._strategies)


def tensors_of(context: PyTorchTrialContext) -> dict[str, Any]:
    """Returns the tensors of models and the parameters of optimizers, at the places that they have in a checkpoint."""
    from core_sdk.loop.sharded_tensors import presence  # slow to import

    optimizers = [presence(optimizer) for optimizer in context.optimizers]
    return {
        "models_state_dict": model_states(context),
        "optimizers_state_dict": optimizers,
        "gradients": [optimizer["state"] for optimizer in optimizers],
    }


def model_states(context: PyTorchTrialContext) -> list[dict[str, Any]]:
    return [strategy.model_state(model) for model, strategy in zip(context.models, context._strategies, strict=True)]


def is_own(context: TrialContext, content: dict[str, Any]) -> bool:
    """Whether this is a checkpoint of this trial, and not of another one."""
    return bool(content["trainer_state"]["trial_id"] == context.get_trial_id())


WRAPPED = ("models", "optimizers", "lr_schedulers")
PARTS = (*WRAPPED, "callbacks", "training")
"""The parts of a checkpoint that can be kept. "training": the progress, the place in the data, the random numbers."""


def kept_parts(keep: str | Collection[str] | None, is_own: bool) -> frozenset[str]:
    """Returns the parts to keep. Raises `ValueError` for an unknown part."""
    if keep is None:
        return frozenset(PARTS if is_own else [*WRAPPED, "callbacks"])
    if isinstance(keep, str):
        if keep not in ("all", "model"):
            raise ValueError(f'keep={keep!r}: give "all", "model", or a set of {", ".join(PARTS)}')
        return frozenset(PARTS if keep == "all" else ["models"])
    if unknown := sorted(set(keep) - set(PARTS)):
        raise ValueError(f"keep has {', '.join(map(repr, unknown))}; it may have {', '.join(PARTS)}")
    return frozenset(keep)


def batches_trained(content: dict[str, Any]) -> int:
    return cast(int, content["trainer_state"]["training"]["driver"]["counters"]["batches"])


class Progress(Protocol):
    """The progress of a training."""

    @property
    def counters(self) -> Counters: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class TrialState:
    """The whole state of a training, saved and loaded as one checkpoint."""

    trial_type = "PyTorchTrial"

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        callbacks: Callbacks,
        progress: Progress,
        data: Data,
    ) -> None:
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._progress = progress
        self._data = data

    def save(self) -> str:
        """Saves a checkpoint, and returns its storage id on every rank. Collective.

        Random draws of hooks do not change the training.
        """
        with rng.kept():
            content = self._content()
            if self._all_ranks_write():
                storage_id = self._store_sharded(content)
            else:
                channel = self._context.distributed.channel
                storage_id = channel.broadcast_outcome(lambda: self._store(content), is_patient=True)
            self._callbacks.call("on_checkpoint_upload_end", storage_id)
        return storage_id

    def load(self, content: dict[str, Any], kept: Collection[str]) -> None:
        """Loads the parts `kept` of the content of a checkpoint."""
        context = self._context
        self._callbacks.call("on_checkpoint_load_start", content)
        self._load_wrapped(content, kept)
        if "callbacks" in kept:
            self._callbacks.load_state_dict(content["callbacks"])
        if "training" not in kept:
            return
        trainer_state = content["trainer_state"]
        self._progress.load_state_dict(trainer_state["training"])
        ranks = trainer_state["ranks"]
        rank = context.distributed.rank
        self._data.load_state_dict(ranks[rank if rank < len(ranks) else 0]["data"])
        if "gradients" in content:
            restore_gradients(context, content["gradients"])
        restore_random_numbers([each["random"] for each in ranks], rank)

    def _content(self) -> dict[str, Any]:
        """Returns the content of a checkpoint. Collective; complete on the chief only."""
        context = self._context
        own = {"random": rng.capture(), "data": self._data.state_dict()}
        return {
            **self._wrapped_content(),
            "callbacks": self._callbacks.state_dict(),
            "trainer_state": {
                "trial_id": context.get_trial_id(),
                "training": self._progress.state_dict(),
                "ranks": context.distributed.gather(own),
            },
        }

    def _wrapped_content(self) -> dict[str, Any]:
        """Returns the states of all objects that the trial has wrapped."""
        context = self._context
        content: dict[str, Any] = {
            "models_state_dict": model_states(context),
            "optimizers_state_dict": [optimizer.state_dict() for optimizer in context.optimizers],
            "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in context.lr_schedulers],
        }
        if context._scaler is not None:
            content["scaler_state_dict"] = context._scaler.state_dict()
        gradients = pending_gradients(context)
        if gradients is not None and not context._has_own_gradients:
            content["gradients"] = gradients
        return content

    def _load_wrapped(self, content: dict[str, Any], kept: Collection[str]) -> None:
        context = self._context
        if "models" in kept:
            load_all("model", context.models, content["models_state_dict"])
        if "optimizers" in kept:
            load_all("optimizer", context.optimizers, content["optimizers_state_dict"])
        if "lr_schedulers" in kept:
            load_all("learning-rate scheduler", context.lr_schedulers, content["lr_schedulers_state_dict"])
        if "optimizers" in kept and context._scaler is not None and "scaler_state_dict" in content:
            context._scaler.load_state_dict(content["scaler_state_dict"])

    def _all_ranks_write(self) -> bool:
        return is_sharded(self._context) or self._context._has_own_gradients

    def _store(self, content: dict[str, Any]) -> str:
        with self._context._core.checkpoint.store_path(self._metadata()) as (directory, storage_id):
            self._write(content, directory)
        return storage_id

    def _store_sharded(self, content: dict[str, Any]) -> str:
        """Stores a checkpoint into which each rank writes the part that only it has. Collective."""
        context = self._context
        with context._core.checkpoint.store_path(self._metadata(), shard=True) as (directory, storage_id):
            content = self._write_part(content, directory)
            if context.distributed.is_chief:
                self._write(content, directory)
        return storage_id

    def _write_part(self, content: dict[str, Any], directory: Path) -> dict[str, Any]:
        """Writes the part of the content that only this rank has, and returns the rest. Collective."""
        if is_sharded(self._context):
            from core_sdk.loop.sharded_tensors import take_out, write  # slow to import

            content, tensors = take_out(content)
            write(tensors, directory)
        if self._context._has_own_gradients:
            write_gradients(self._context, directory)
        return content

    def _write(self, content: dict[str, Any], directory: Path) -> None:
        self._callbacks.call("on_checkpoint_save_start", content)
        for name, value in content.items():
            check_plain(value, name)
        torch.save(content, directory / STATE_FILE)
        self._write_definition(directory)
        self._callbacks.call("on_checkpoint_end", str(directory))
        self._callbacks.call("on_checkpoint_write_end", str(directory))

    def _metadata(self) -> dict[str, Any]:
        counters = self._progress.counters
        return {
            "steps_completed": counters.batches,
            "epochs": counters.epochs,
            "records": counters.records,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
            "core_sdk_version": __version__,
        }

    def _write_definition(self, directory: Path) -> None:
        """Writes what is needed to build the trial again: its class, its code and its hyperparameters."""
        kind = type(self._trial)
        load_data = {
            "trial_type": self.trial_type,
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


def load_all(what: str, targets: Sequence[Any], states: Sequence[Any]) -> None:
    """Loads each object's state. Raises `StateMismatchError` if their numbers differ, or one does not fit."""
    if len(targets) != len(states):
        raise StateMismatchError(
            f"the {what}s of the trial",
            [f"there are {len(states)} in the checkpoint and {len(targets)} here"],
            "Wrap the same ones in the same order, or begin a new trial",
        )
    for index, (target, state) in enumerate(zip(targets, states, strict=True)):
        load_object(what if len(targets) == 1 else f"{what} {index}", target, state)
