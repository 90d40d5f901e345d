"""The trainer under the name and with the arguments that RaySGD gave it in Ray 1.x."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import torch

from core_sdk.sgd._creators import Function, SchedulerStep
from core_sdk.sgd._metrics import Measured, Metrics
from core_sdk.sgd._operator import NUM_SAMPLES, TrainingOperator
from core_sdk.sgd._trainer import PyTorchTrainer

logger = logging.getLogger("core_sdk.sgd")

T = TypeVar("T")

# What arranged actors, progress bars and calls there, and has no counterpart here.
_IGNORED = {"use_tqdm", "num_cpus_per_worker", "timeout_s", "serialize_data_creation", "use_local"}


class TorchTrainer(PyTorchTrainer):
    """A `PyTorchTrainer` whose passes are made by a `TrainingOperator`.

    `training_operator_cls` registers what is trained in its `setup()`, or creators make it, as for a `PyTorchTrainer`.
    A `DataLoader` that is registered, or that `data_creator(config)` returns, has the batch size of one worker.
    """

    def __init__(
        self,
        *,
        model_creator: Function | None = None,
        data_creator: Function | None = None,
        optimizer_creator: Function | None = None,
        loss_creator: Function | None = None,
        scheduler_creator: Function | None = None,
        training_operator_cls: type[TrainingOperator] = TrainingOperator,
        initialization_hook: Function | None = None,
        config: Mapping[str, Any] | None = None,
        num_workers: int = 1,
        use_gpu: bool | Literal["auto"] = False,
        backend: Literal["auto", "nccl", "gloo"] = "auto",
        use_fp16: bool = False,
        apex_args: Mapping[str, Any] | None = None,
        scheduler_step_freq: SchedulerStep = "batch",
        wrap_ddp: bool = True,
        add_dist_sampler: bool = True,
        **more: Any,
    ) -> None:
        """`more` has further arguments of a `PyTorchTrainer`, such as `engine`, `name` and `job_id`.

        Raises `TypeError` for a `training_operator_cls` that is none, and what `PyTorchTrainer()` raises.
        """
        if not (isinstance(training_operator_cls, type) and issubclass(training_operator_cls, TrainingOperator)):
            raise TypeError(
                f"training_operator_cls is {training_operator_cls!r}; it must be a class of TrainingOperator"
            )
        if not (wrap_ddp and add_dist_sampler):
            raise ValueError("wrap_ddp=False and add_dist_sampler=False: the workers always divide each batch")
        if ignored := sorted(_IGNORED & more.keys()):
            logger.warning("these arguments of a TorchTrainer change nothing here: %s", ", ".join(ignored))
        creators = training_operator_cls.creators
        super().__init__(
            model_creator or creators.get("model_creator"),
            data_creator or creators.get("data_creator"),
            optimizer_creator or creators.get("optimizer_creator"),
            loss_creator or creators.get("loss_creator"),
            scheduler_creator or creators.get("scheduler_creator"),
            initialization_hook=initialization_hook,
            config=config,
            num_replicas=num_workers,
            use_gpu=torch.cuda.is_available() if use_gpu == "auto" else use_gpu,
            batch_size=more.pop("batch_size", max(16, num_workers)),
            backend=backend,
            use_fp16=use_fp16,
            apex_args=apex_args,
            scheduler_step_freq=scheduler_step_freq,
            training_operator_cls=training_operator_cls,
            **{name: each for name, each in more.items() if name not in _IGNORED},
        )

    def train(  # type: ignore[override]
        self,
        num_steps: int | None = None,
        profile: bool = False,
        reduce_results: Literal[True] = True,
        max_retries: int = 0,
        info: Mapping[str, Any] | None = None,
    ) -> Metrics:
        """Trains the rest of an epoch, or `num_steps` batches from here on, and returns means over all workers.

        `num_samples`, which counts the samples, is the sum over the workers. `info` is passed on to the operator. Times
        are among the metrics, whatever `profile` says. `max_retries` is that of `PyTorchTrainer.train()`.
        """
        _check_reduced(reduce_results)
        metrics = super().train(max_retries, num_steps=num_steps, info=info)
        return {NUM_SAMPLES: metrics["batch_processed"], **metrics}

    def validate(
        self,
        num_steps: int | None = None,
        profile: bool = False,
        reduce_results: Literal[True] = True,
        info: Mapping[str, Any] | None = None,
    ) -> Metrics:
        """Validates on all data, or on `num_steps` batches of each worker, and returns means over all samples."""
        _check_reduced(reduce_results)
        return super().validate(num_steps=num_steps, info=info)

    def apply_all_workers(self, fn: Callable[[], T]) -> list[T]:  # type: ignore[override]
        """Calls `fn()` on each worker, and returns the results in the order of the ranks."""
        return super().apply_all_workers(lambda runner: fn())

    def apply_all_operators(self, fn: Callable[[Any], T]) -> list[T]:
        """Calls `fn(operator)` on each worker, and returns the results in the order of the ranks."""
        return super().apply_all_workers(lambda runner: fn(runner.operator))

    def get_model(self, to_cpu: bool = True) -> Any:
        """Returns the trained model, or the list of them, always on the CPU of this process."""
        return super().get_model()

    def _combined(self, measured: list[Measured], function: str) -> Metrics:
        metrics = super()._combined(measured, function)
        if NUM_SAMPLES in metrics:
            metrics[NUM_SAMPLES] = sum(each.metrics[NUM_SAMPLES] for each in measured)
        return metrics


def _check_reduced(reduce_results: bool) -> None:
    if not reduce_results:
        raise ValueError("reduce_results=False: metrics are means over the workers; apply_all_operators() asks each")
