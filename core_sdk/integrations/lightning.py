"""A callback for Lightning's Trainer.

with core_sdk.core.init(name="digits") as core_context:
    callback = CoreSDKCallback(core_context)
    trainer = Trainer(callbacks=[callback])
    trainer.fit(model, data, ckpt_path=callback.latest_checkpoint())
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_sdk.core import Context
from core_sdk.errors import MissingDependencyError
from core_sdk.integrations._copies import Copies
from core_sdk.integrations._lightning_loops import call_between_batches
from core_sdk.integrations._lightning_state import (
    add_sums,
    capture,
    capture_rank,
    combined_loader,
    restore,
    withhold_last_saves,
)
from core_sdk.integrations._reporting import Reporter
from core_sdk.integrations._resuming import LatestCheckpoint
from core_sdk.loop import _rng as rng
from core_sdk.loop._state import restore_random_numbers

try:
    from lightning import pytorch as framework
except ImportError:
    try:
        import pytorch_lightning as framework
    except ImportError as error:
        raise MissingDependencyError("Lightning", "lightning", "core_sdk.integrations.lightning") from error

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

logger = logging.getLogger("core_sdk.integrations")

_FILE = "lightning.ckpt"
_RANDOM = "core_sdk_random_numbers"
"""The key of a checkpoint's generators, a state for each rank, which Lightning leaves out."""


class CoreSDKCallback(framework.Callback):
    """Reports what the module logs, stores what `ModelCheckpoint` saves, and stops the training when it should stop.

    A training stops between two batches, after a step of the optimizer, and with all that follows the batch: its
    validation, or the end of its epoch. It stores a checkpoint, from which a resumed training goes on as if it had not
    been stopped, and leaves the epoch without ending it.
    """

    def __init__(self, core_context: Context) -> None:
        self._core_context = core_context
        self._reporter = Reporter(core_context)
        self._latest = LatestCheckpoint(core_context)
        self._copies = Copies(core_context) if core_context.distributed.is_chief else None
        self._is_stopping = False
        self._steps_before: int | None = None
        """The steps completed before the last batch; None if this call of `fit()` has trained none."""
        self._captured: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}
        """The parts that were captured when the training stopped, until they are restored."""
        self._random: list[Any] = []
        """The random numbers of each rank in a checkpoint that no stop has stored, until they are restored."""
        self._sums: dict[str, Any] = {}
        self._latest_path: str | None = None
        self._without_directory: list[ModelCheckpoint] = []
        """The callbacks whose directory is chosen by Lightning, which chooses another one for each attempt."""
        self._stored: tuple[int, str] | None = None
        """The step and the storage id of the newest checkpoint of this attempt."""
        self._sigterm_handler: Any = signal.SIG_DFL

    def latest_checkpoint(self) -> str | None:
        """Returns the path for `trainer.fit(ckpt_path=…)`, or None if there is no checkpoint. Collective."""
        directory = self._latest.open()
        if directory is None:
            return None
        self._latest_path = str(directory / _FILE)
        return self._latest_path

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Raises `ValueError` if the Trainer does not train with all ranks, since each rank would then train alone."""
        if trainer.world_size != (num_ranks := self._core_context.distributed.size):
            raise ValueError(
                f"the Trainer has {trainer.world_size} ranks, and the Context {num_ranks}: pass `devices=` the ranks "
                "of each node (core_context.distributed.local_size) and `num_nodes=` to Trainer()"
            )
        self._sigterm_handler = signal.getsignal(signal.SIGTERM)
        self._loaded = {}
        self._without_directory = [
            each for each in trainer.checkpoint_callbacks if getattr(each, "dirpath", "") is None
        ]
        if not any(isinstance(logger, _Logger) for logger in trainer.loggers):
            version = f"trial-{self._core_context.info.trial.trial_id}"
            trainer.loggers = [*trainer.loggers, _Logger(trainer, self, version)]
            call_between_batches(trainer, self)
            # A stop saves once more, so the random draws of a save must not change the training.
            setattr(trainer, "save_checkpoint", rng.kept()(trainer.save_checkpoint))  # noqa: B010 - as below
            if self._copies is not None:
                _follow_removals(trainer, self._copies)

    def state_dict(self) -> dict[str, Any]:
        return self._captured

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Adds the random numbers, so that a training goes on exactly after a kill, too. Collective, as every save is.

        A save for an exception, which the other ranks may not join, does without them.
        """
        if trainer.state.fn == "fit" and not self._captured and sys.exception() is None:
            checkpoint[_RANDOM] = self._core_context.distributed.allgather(rng.capture())

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit":
            self._loaded = checkpoint["callbacks"].get(self.state_key, {})
            self._random = checkpoint.get(_RANDOM, [])
            self._stay_in_directories(trainer, checkpoint["callbacks"])

    def _stay_in_directories(self, trainer: Trainer, states: Mapping[str, Any]) -> None:
        """Lets `ModelCheckpoint` go on in the directory of the trial's earlier attempt, so that it knows its best."""
        info = self._core_context.info
        if info.latest_checkpoint is None or str(trainer.ckpt_path) != self._latest_path:
            return
        if self._core_context.checkpoint.get_metadata(info.latest_checkpoint).get("trial_id") == info.trial.trial_id:
            for each in self._without_directory:
                each.dirpath = states.get(each.state_key, {}).get("dirpath", each.dirpath)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._latest.close()
        self._steps_before = None
        _warn_of_inexact_loaders(trainer)
        # Lightning's own handler raises an exception after a collective, which other ranks may not join.
        with contextlib.suppress(ValueError):  # outside of the main thread there is no handler
            signal.signal(signal.SIGTERM, self._sigterm_handler)

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def before_epoch(self, trainer: Trainer) -> bool:
        """Stops the training if it should stop between two epochs, and restores it when it begins."""
        if self not in trainer.callbacks:
            return False  # Lightning looks for a learning rate or a batch size
        self._stop_if_asked(trainer)
        if self._random:
            restore_random_numbers(self._random, self._core_context.distributed.rank)
            self._random = []
        if not (loaded := self._loaded):
            return False
        self._loaded = {}
        self._sums = restore(trainer, loaded["shared"], loaded["ranks"], self._core_context.distributed.rank)
        return True

    def before_batch(self, trainer: Trainer) -> None:
        """Stops the training if it should stop between two batches.

        It is not asked while gradients are accumulated, since they are not stored.
        """
        if self in trainer.callbacks:
            if self._steps_before not in (None, trainer.global_step):
                self._stop_if_asked(trainer)
            self._steps_before = trainer.global_step

    def after_batch(self, trainer: Trainer) -> None:
        if self._sums:
            add_sums(trainer, self._sums)

    def _stop_if_asked(self, trainer: Trainer) -> None:
        """Raises `StopIteration`, by which Lightning's loops end, if the training should stop."""
        if not self._is_stopping and self._core_context.preempt.should_preempt():
            self._is_stopping = True
            if self._steps_before is not None:  # otherwise the training is where it began
                ranks = self._core_context.distributed.gather(capture_rank(trainer))
                self._captured = {"shared": capture(trainer), "ranks": ranks}
                self._store(trainer)
                withhold_last_saves(trainer)
        if self._is_stopping:
            trainer.should_stop = True
            raise StopIteration

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._reporter.report_progress(trainer.global_step, trainer.estimated_stepping_batches)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._latest.close()

    def report(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Reports what Lightning logs."""
        if trainer.state.fn == "fit":
            self._reporter.report(_group(trainer), trainer.global_step, metrics)
        else:
            own = {name: value for name, value in metrics.items() if name != "epoch"}  # Lightning adds the epoch
            self._reporter.report_evaluation(_group(trainer), trainer.global_step, own)
        if trainer.training:
            self._reporter.report_progress(trainer.global_step, trainer.estimated_stepping_batches)

    def store_copy(self, path: Path, steps_completed: int, *, is_kept: bool) -> None:
        """Stores a copy of the file that Lightning has saved. Only the chief calls it.

        With `is_kept` the checkpoint stays; otherwise it is deleted after the file. After a stop nothing is
        stored: Lightning's save would count the epoch as completed.
        """
        if self._is_stopping or self._copies is None:
            return
        if self._stored is None or self._stored[0] != steps_completed:
            metadata = self._copies.metadata(steps_completed, path)
            with self._core_context.checkpoint.store_path(metadata) as (directory, storage_id):
                if path.is_dir():
                    shutil.copytree(path, directory / _FILE)
                else:
                    shutil.copyfile(path, directory / _FILE)
            self._stored = steps_completed, storage_id
        if is_kept:
            self._copies.keep(self._stored[1])
        else:
            self._copies.add(path, self._stored[1])

    def record_hparams(self, hparams: Mapping[str, Any]) -> None:
        self._core_context.record_hparams(hparams)

    def _store(self, trainer: Trainer) -> None:
        """Stores a checkpoint. Collective, since some strategies write one checkpoint together."""
        distributed = self._core_context.distributed
        with contextlib.ExitStack() as stored:
            path = Path()
            if self._copies is not None:
                metadata = self._copies.metadata(trainer.global_step, None)
                directory, _ = stored.enter_context(self._core_context.checkpoint.store_path(metadata))
                path = directory / _FILE
            trainer.save_checkpoint(distributed.broadcast(path), weights_only=False)


def _warn_of_inexact_loaders(trainer: Trainer) -> None:
    loaders = combined_loader(trainer).flattened
    if inexact := {type(each).__name__ for each in loaders if not hasattr(each, "load_state_dict")}:
        logger.warning(
            "%s keeps no position: a training that is stopped within an epoch trains the rest of it with other "
            "samples. core_sdk.loop.resumable(loader) goes on with the very next one.",
            ", ".join(sorted(inexact)),
        )


def _follow_removals(trainer: Trainer, copies: Copies) -> None:
    """Tells `copies` each file that `ModelCheckpoint` deletes, by wrapping the strategy's method for it."""
    remove_checkpoint = trainer.strategy.remove_checkpoint

    def remove(filepath: str | Path) -> None:
        remove_checkpoint(filepath)
        copies.remove(Path(filepath))

    setattr(trainer.strategy, "remove_checkpoint", remove)  # noqa: B010 - mypy lets nobody assign to a method


class _Logger(framework.loggers.Logger):
    """A logger that Lightning calls, on the chief, with all values that are logged, and after each save."""

    def __init__(self, trainer: Trainer, callback: CoreSDKCallback, version: str) -> None:
        super().__init__()
        self._version = version
        self._trainer = trainer
        self._callback = callback

    @property
    def name(self) -> str:
        return "core-sdk"

    @property
    def version(self) -> str:
        return self._version

    def log_hyperparams(self, params: Mapping[str, Any] | argparse.Namespace, *args: object, **kwargs: object) -> None:
        """Records the hyperparameters, unless the trial has any."""
        self._callback.record_hparams(params if isinstance(params, Mapping) else vars(params))

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Reports metrics at the trainer's own step, since `step` counts from 0, and counts batches in a test."""
        self._callback.report(self._trainer, metrics)

    def after_save_checkpoint(self, checkpoint_callback: ModelCheckpoint) -> None:
        """Stores the file that was just saved, which is the newest of the callback's paths."""
        if checkpoint_callback.save_weights_only:
            return  # nothing could be resumed from it
        last = checkpoint_callback.last_model_path
        known = {checkpoint_callback.best_model_path, last}
        paths = [Path(path) for path in known.union(checkpoint_callback.best_k_models) if path]
        saved = [path for path in paths if path.exists()]
        if saved:
            newest = max(saved, key=lambda path: path.stat().st_mtime_ns)
            is_kept = checkpoint_callback.save_top_k == -1 and str(newest) != last
            self._callback.store_copy(newest, self._trainer.global_step, is_kept=is_kept)


def _group(trainer: Trainer) -> str:
    if trainer.testing:
        return "test"
    return "validation" if trainer.validating else "training"
