"""A callback for Lightning's Trainer.

with core_sdk.core.init(name="digits") as core_context:
    callback = CoreSDKCallback(core_context)
    trainer = Trainer(callbacks=[callback])
    trainer.fit(model, data, ckpt_path=callback.latest_checkpoint())
"""

from __future__ import annotations

import argparse
import contextlib
import math
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_sdk.core import Context
from core_sdk.errors import MissingDependencyError
from core_sdk.integrations._copies import Copies
from core_sdk.integrations._reporting import Reporter
from core_sdk.integrations._resuming import LatestCheckpoint

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

_FILE = "lightning.ckpt"


class CoreSDKCallback(framework.Callback):
    """Reports what the module logs, stores what `ModelCheckpoint` saves, and stops the training when it should stop.

    On a stop it stores a checkpoint and sets `trainer.should_stop`. `min_epochs` and `min_steps` do not delay the stop.
    A validation that is due comes first, since a resumed training does not make up for it; no other one follows.
    """

    def __init__(self, core_context: Context) -> None:
        self._core_context = core_context
        self._reporter = Reporter(core_context)
        self._latest = LatestCheckpoint(core_context)
        self._copies = Copies(core_context) if core_context.distributed.is_chief else None
        self._is_stopping = False
        self._stored: tuple[int, str] | None = None
        """The step and the storage id of the newest checkpoint of this attempt."""
        self._sigterm_handler: Any = signal.SIG_DFL

    def latest_checkpoint(self) -> str | None:
        """Returns the path for `trainer.fit(ckpt_path=…)`, or None if there is no checkpoint. Collective."""
        directory = self._latest.open()
        return None if directory is None else str(directory / _FILE)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Raises `ValueError` if the Trainer does not train with all ranks, since each rank would then train alone."""
        if trainer.world_size != (num_ranks := self._core_context.distributed.size):
            raise ValueError(
                f"the Trainer has {trainer.world_size} ranks, and the Context {num_ranks}: pass `devices=` the ranks "
                "of each node (core_context.distributed.local_size) and `num_nodes=` to Trainer()"
            )
        self._sigterm_handler = signal.getsignal(signal.SIGTERM)
        if not any(isinstance(logger, _Logger) for logger in trainer.loggers):
            version = f"trial-{self._core_context.info.trial.trial_id}"
            trainer.loggers = [*trainer.loggers, _Logger(trainer, self, version)]
            if self._copies is not None:
                _follow_removals(trainer, self._copies)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._latest.close()
        # Lightning's own handler raises an exception after a collective, which other ranks may not join.
        with contextlib.suppress(ValueError):  # outside of the main thread there is no handler
            signal.signal(signal.SIGTERM, self._sigterm_handler)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        if not _is_validated_next(trainer, batch_idx):
            self._stop_if_asked(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._stop_if_asked(trainer)

    def _stop_if_asked(self, trainer: Trainer) -> None:
        if not self._is_stopping and self._core_context.preempt.should_preempt():
            self._is_stopping = True
            self._store(trainer)
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
            trainer.limit_val_batches = 0
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._reporter.report_progress(trainer.global_step, trainer.estimated_stepping_batches)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._latest.close()

    def report(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """Reports what Lightning logs."""
        self._reporter.report(_group(trainer), trainer.global_step, metrics)
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
            trainer.save_checkpoint(distributed.broadcast(path))


def _is_validated_next(trainer: Trainer, batch_idx: int) -> bool:
    """Returns whether Lightning validates after this batch of the training."""
    every, num_batches = trainer.check_val_every_n_epoch, trainer.val_check_batch
    if not trainer.enable_validation or (every is not None and (trainer.current_epoch + 1) % every):
        return False
    if math.isinf(num_batches):  # the loader has no length
        return bool(trainer.is_last_batch)
    index = trainer.fit_loop.total_batch_idx if every is None else batch_idx
    return bool((index + 1) % num_batches == 0)


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
