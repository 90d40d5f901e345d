"""A callback for the Trainer of Hugging Face Transformers.

with core_sdk.core.init(name="digits") as core_context:
    callback = CoreSDKCallback(core_context)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.latest_checkpoint())
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core_sdk.core import Context
from core_sdk.errors import MissingDependencyError
from core_sdk.integrations._copies import Copies
from core_sdk.integrations._reporting import Reporter
from core_sdk.integrations._resuming import LatestCheckpoint

try:
    from transformers import TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy, SaveStrategy

    from core_sdk.integrations._transformers_saves import CallbackOfSaves
except ImportError as error:
    raise MissingDependencyError("Transformers", "transformers", "core_sdk.integrations.transformers") from error

_EVALUATION = "eval_"
_PREDICTION = "test_"
_RUNTIME = "_runtime"
_NOT_HPARAMS = {
    "output_dir",
    "logging_dir",
    "run_name",
    "report_to",
    "disable_tqdm",
    "local_rank",
    "restore_callback_states_from_checkpoint",
}

logger = logging.getLogger("core_sdk.integrations")


class CoreSDKCallback(CallbackOfSaves):
    """Reports what the Trainer logs, stores what it saves, and makes it save and end when the training should stop.

    A stop ends the epoch after the current step. An evaluation that is due comes first, since the best model and early
    stopping depend on it. A training that ends by itself at this step is complete. After a stop nothing is reported.
    """

    def __init__(self, core_context: Context) -> None:
        self._core_context = core_context
        self._reporter = Reporter(core_context)
        self._latest = LatestCheckpoint(core_context)
        self._copies = Copies(core_context) if core_context.distributed.is_chief else None
        self._is_asked = False
        self._is_stopped = False
        self._own_saving: tuple[Any, bool] | None = None
        """The script's `save_strategy` and `save_only_model` while the stop's checkpoint is saved."""

    def latest_checkpoint(self) -> str | None:
        """Returns the path for `trainer.train(resume_from_checkpoint=…)`, or None without a checkpoint. Collective."""
        directory = self._latest.open()
        return None if directory is None else str(directory)

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Lets a resume restore the other callbacks, such as the patience that `EarlyStoppingCallback` has left."""
        args.restore_callback_states_from_checkpoint = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Raises `ValueError` if ranks would train alone, or if a resume would not restore other callbacks."""
        if args.world_size != (num_ranks := self._core_context.distributed.size):
            raise ValueError(
                f"the world size of the Trainer is {args.world_size}, and that of the Context {num_ranks}: ranks would "
                "train alone. Where they have no GPU, use TrainingArguments(use_cpu=True); a Context of all ranks is "
                "that of init(distributed=DistributedContext.from_torch_distributed())"
            )
        stateful = [name for name in state.stateful_callbacks if name != TrainerControl.__name__]
        if stateful and not args.restore_callback_states_from_checkpoint:
            raise ValueError(
                f"a resume would not restore the state of {', '.join(stateful)}: pass Core SDK's callback to "
                "Trainer(callbacks=[…]), or use TrainingArguments(restore_callback_states_from_checkpoint=True)"
            )
        if args.save_only_model and self._copies is not None:
            logger.warning(
                "save_only_model=True: what the Trainer saves is not stored, since no training can resume from it; "
                "a stop stores a whole checkpoint"
            )
        self._core_context.record_hparams(_hparams(args))
        _draw_elsewhere(kwargs.get("train_dataloader"), args.seed + state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any],
        **kwargs: object,
    ) -> None:
        if not self._is_stopped and not _is_evaluation(logs):
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
        if not self._is_stopped:
            is_test = any(name.startswith(_PREDICTION) for name in metrics)
            group, prefix = ("test", _PREDICTION) if is_test else ("validation", _EVALUATION)
            self._reporter.report_evaluation(group, state.global_step, self._shown(metrics, prefix))

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any],
        **kwargs: object,
    ) -> None:
        if not self._is_stopped:
            self._reporter.report_evaluation("test", state.global_step, _without_prefix(metrics, _PREDICTION))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._latest.close()  # the random states are read last, before the first step
        if not self._is_asked:
            self._is_asked = self._core_context.preempt.should_preempt(auto_ack=False)
        if self._is_asked:
            control.should_epoch_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Makes the Trainer save all that a resume needs, if it should stop and has not ended by itself."""
        if not self._is_asked or control.should_training_stop:
            return
        self._own_saving = args.save_strategy, args.save_only_model
        if args.save_strategy == SaveStrategy.BEST:
            args.save_strategy = SaveStrategy.EPOCH  # otherwise a worse evaluation would keep the Trainer from saving
        args.save_only_model = False
        control.should_save = True
        # The Trainer forgets the losses since its last log.
        control.should_log = args.logging_strategy != IntervalStrategy.NO
        # A resumed training evaluates an epoch that is not completed, and no other one.
        control.should_evaluate = control.should_evaluate and float(state.epoch or 0).is_integer()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        """Stores the files that were saved. Each rank has saved its own; the ranks of a node share a directory."""
        own_saving, self._own_saving = self._own_saving, None
        if own_saving is not None:
            args.save_strategy, args.save_only_model = own_saving
        elif args.save_only_model or (self._is_asked and not control.should_training_stop):
            return  # nothing could be resumed from it, or this step is saved once more when the epoch ends
        self._store(args, state.global_step)
        if own_saving is not None and not control.should_training_stop:
            self._core_context.preempt.acknowledge_preemption_signal()
            self._is_stopped = control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self._latest.close()
        if self._copies is not None and (args.save_total_limit or 0) > 0:
            self._copies.remove_missing()

    def _store(self, args: TrainingArguments, steps_completed: int) -> None:
        directory = checkpoint_directory(args, steps_completed)
        metadata = None if self._copies is None else self._copies.metadata(steps_completed, directory)
        storage_id = self._upload(directory, metadata)
        if self._copies is None:
            return
        if (args.save_total_limit or 0) > 0:
            self._copies.add(directory, storage_id)
            self._copies.remove_missing()
        else:
            self._copies.keep(storage_id)

    def _upload(self, directory: Path, metadata: dict[str, Any] | None) -> str:
        existing = directory if directory.exists() else None
        return self._core_context.checkpoint.upload(existing, metadata, shard=True)

    def _shown(self, metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """Returns the metrics of a training, or of an evaluation, under the names with which they are reported."""
        return _without_prefix(metrics, prefix)


def _draw_elsewhere(loader: Any, seed: int) -> None:
    """Gives a loader with persistent workers a generator, unless it has one.

    Its first iteration draws a number, and no other one does. After a resume there is one more first iteration.
    """
    loader = getattr(loader, "base_dataloader", loader)  # Accelerate's loader iterates over it
    if getattr(loader, "persistent_workers", False) and loader.generator is None:
        loader.generator = torch.Generator().manual_seed(seed)


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


def _is_evaluation(logs: Mapping[str, Any]) -> bool:
    """Returns whether the Trainer logs an evaluation, which it hands to `on_evaluate` as well."""
    # Whatever its prefix is, an evaluation has a runtime.
    return any(name.startswith(_EVALUATION) or (name.endswith(_RUNTIME) and name != "train_runtime") for name in logs)


def _without_prefix(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in metrics.items()}
