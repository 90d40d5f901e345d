"""A callback for the Trainer of Hugging Face Transformers.

with core_sdk.core.init(name="digits") as core_context:
    callback = CoreSDKCallback(core_context)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.latest_checkpoint())
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_sdk.core import Context
from core_sdk.errors import MissingDependencyError
from core_sdk.integrations._copies import Copies
from core_sdk.integrations._reporting import Reporter
from core_sdk.integrations._resuming import LatestCheckpoint

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError as error:
    raise MissingDependencyError("Transformers", "transformers", "core_sdk.integrations.transformers") from error

_EVALUATION = "eval_"
_PREDICTION = "test_"
_NOT_HPARAMS = {"output_dir", "logging_dir", "run_name", "report_to", "disable_tqdm", "local_rank"}


class CoreSDKCallback(TrainerCallback):
    """Reports what the Trainer logs, stores what it saves, and makes it save and end when the training should stop."""

    def __init__(self, core_context: Context) -> None:
        self._core_context = core_context
        self._reporter = Reporter(core_context)
        self._latest = LatestCheckpoint(core_context)
        self._copies = Copies(core_context) if core_context.distributed.is_chief else None
        self._is_stopping = False
        self._stored_step: int | None = None

    def latest_checkpoint(self) -> str | None:
        """Returns the path for `trainer.train(resume_from_checkpoint=…)`, or None without a checkpoint. Collective."""
        directory = self._latest.open()
        return None if directory is None else str(directory)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._core_context.record_hparams(_hparams(args))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any],
        **kwargs: object,
    ) -> None:
        if not any(name.startswith(_EVALUATION) for name in logs):
            self._reporter.report("training", state.global_step, self._shown(logs))
            self._reporter.report_progress(state.global_step, state.max_steps)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any],
        **kwargs: object,
    ) -> None:
        self._reporter.report("validation", state.global_step, self._shown(metrics))

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any],
        **kwargs: object,
    ) -> None:
        self._reporter.report("test", state.global_step, _without_prefix(metrics, _PREDICTION))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._latest.close()  # the random states are read last, before the first step
        if not self._is_stopping and self._core_context.preempt.should_preempt():
            self._is_stopping = True
            control.should_save = control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if self._is_stopping:
            control.should_save = False  # all is saved
            # A resumed training evaluates an epoch that is not completed, and no other one.
            control.should_evaluate = control.should_evaluate and float(state.epoch or 0).is_integer()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Stores the files that were saved. Each rank has saved its own; the ranks of a node share a directory."""
        if state.global_step == self._stored_step:
            return
        directory = checkpoint_directory(args, state.global_step)
        metadata = None if self._copies is None else self._copies.metadata(state.global_step, directory)
        storage_id = self._upload(directory, metadata)
        self._stored_step = state.global_step
        if self._copies is None:
            return
        if (args.save_total_limit or 0) > 0:
            self._copies.add(directory, storage_id)
            self._copies.remove_missing()
        else:
            self._copies.keep(storage_id)

    def _shown(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the metrics of a training or a validation under the names with which they are reported."""
        return _without_prefix(metrics, _EVALUATION)

    def _upload(self, directory: Path, metadata: dict[str, Any] | None) -> str:
        existing = directory if directory.exists() else None
        return self._core_context.checkpoint.upload(existing, metadata, shard=True)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._latest.close()
        if self._copies is not None and (args.save_total_limit or 0) > 0:
            self._copies.remove_missing()


def checkpoint_directory(args: TrainingArguments, steps_completed: int) -> Path:
    """Returns the directory in which the Trainer saves at this step."""
    return Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{steps_completed}")


def _hparams(args: TrainingArguments) -> dict[str, Any]:
    """Returns the arguments that the script has set, without those that say where and how to write."""
    told = args.to_dict()
    hparams = {}
    for each in dataclasses.fields(args):
        default = None if each.default is dataclasses.MISSING else each.default
        value = getattr(args, each.name)
        # Arguments that the script leaves None or empty may have become False, an empty list or an object.
        is_set = value != default and (value or default) and isinstance(value, bool | int | float | str | list | dict)
        if is_set and each.init and each.name not in _NOT_HPARAMS:
            hparams[each.name] = told[each.name]
    return hparams


def _without_prefix(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in metrics.items()}
