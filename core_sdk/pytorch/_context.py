"""The context of a `PyTorchTrial`: wraps models and optimizers, and makes gradients and steps of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from core_sdk.core import Context, DistributedContext
from core_sdk.pytorch._experimental import PyTorchExperimentalContext
from core_sdk.pytorch._lr_scheduler import LRScheduler
from core_sdk.pytorch._strategies import OptimizerStep, Strategy, named_strategy
from core_sdk.pytorch._trial_context import TrialContext

logger = logging.getLogger("core_sdk.pytorch")


class PyTorchTrialContext(TrialContext):
    """`pytorch.init()` makes it, and the trial's `__init__()` gets it.

    What is wrapped is trained on all ranks, saved in each checkpoint and restored from it, in the order of wrapping.
    """

    def __init__(
        self,
        *,
        core_context: Context | None,
        distributed: DistributedContext,
        device: torch.device,
        strategy: Strategy,
        hparams: Mapping[str, Any] | None,
        exp_conf: Mapping[str, Any] | None,
        aggregation_frequency: int = 1,
        enable_tensorboard_logging: bool = True,
    ) -> None:
        super().__init__(
            core_context=core_context,
            distributed=distributed,
            device=device,
            hparams=hparams,
            exp_conf=exp_conf,
            enable_tensorboard_logging=enable_tensorboard_logging,
        )
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.profiler: Any = None
        self.experimental = PyTorchExperimentalContext()
        self._scaler: Any = None
        self._strategy = strategy
        self._strategies: list[Strategy] = []
        self._steps: dict[torch.optim.Optimizer, OptimizerStep] = {}
        self._aggregation_frequency = aggregation_frequency
        self._is_stepping = True
        # What a configuration says of optimizers that say nothing themselves.
        self._averages_gradients = True
        self._compresses_gradients = False

    def wrap_model(
        self,
        model: nn.Module,
        strategy: str | None = None,
        compile: bool | Mapping[str, Any] = False,
        **options: Any,
    ) -> nn.Module:
        """Moves a model to `device`, and spreads it over the ranks. Returns the model to call."""
        chosen = named_strategy(strategy, self._strategy)
        wrapped = chosen.wrap_model(model, self.device, options)
        if compile is not False and self._core_context is not None:
            wrapped.compile(**({} if compile is True else compile))  # in place: names in its state stay
        self.models.append(wrapped)
        self._strategies.append(chosen)
        return wrapped

    def wrap_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> torch.optim.Optimizer:
        """Registers an optimizer of wrapped models. Returns the optimizer to step."""
        passes = backward_passes_per_step * self._aggregation_frequency
        is_compressed = self._compresses_gradients if fp16_compression is None else fp16_compression
        is_averaged = self._averages_gradients if average_aggregated_gradients is None else average_aggregated_gradients
        wrapped = self._strategy.wrap_optimizer(optimizer, self._named(optimizer), passes, is_compressed)
        divisor = self._aggregation_frequency if is_averaged else 1
        self._steps[wrapped] = self._strategy.optimizer_step(wrapped, divisor)
        self.optimizers.append(wrapped)
        return wrapped

    def _named(self, optimizer: torch.optim.Optimizer) -> list[tuple[str, nn.Parameter]]:
        """The optimizer's parameters, each with a name that no other parameter has."""
        own = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        everything = nn.ModuleList(self.models)
        return [(name, parameter) for name, parameter in everything.named_parameters() if parameter in own]

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1) -> Any:
        """Registers a scheduler, and returns it."""
        if isinstance(lr_scheduler, ReduceLROnPlateau) and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise ValueError(
                "ReduceLROnPlateau needs a metric in step(): wrap it with LRScheduler.StepMode.MANUAL_STEP, and call "
                "its step(metric) in a callback's on_validation_end()"
            )
        optimizer = getattr(lr_scheduler, "optimizer", None)
        if optimizer is not None and optimizer not in self._steps:
            raise ValueError(
                f"the optimizer of this {type(lr_scheduler).__name__} is not wrapped: build the scheduler with what "
                "context.wrap_optimizer() returns"
            )
        self.lr_schedulers.append(LRScheduler(lr_scheduler, step_mode, frequency))
        return lr_scheduler

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Adds the gradients of `loss` to those of the models' parameters; arguments as of torch's `backward()`."""
        loss.backward(gradient, retain_graph, create_graph)  # type: ignore[no-untyped-call]

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[list[nn.Parameter]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any | None = None,
    ) -> None:
        """Makes a step with an optimizer that `wrap_optimizer()` has returned, and sets its gradients to zero."""
        if not self._is_stepping:
            return
        step = self._steps[optimizer]
        step.prepare()
        if clip_grads is not None:
            clip_grads(step.parameters())
        step.step(scaler)
        if auto_zero_grads:
            optimizer.zero_grad()

    def _begin_batch(self, batch_index: int, epoch_index: int, is_epoch_start: bool, is_epoch_end: bool) -> None:
        """The loop calls it before each `train_batch()`."""
        self._batch_index = batch_index
        self._epoch_index = epoch_index
        self._is_epoch_start = is_epoch_start
        self._is_epoch_end = is_epoch_end
        if self._aggregation_frequency > 1:
            self._set_stepping((batch_index + 1) % self._aggregation_frequency == 0)

    def _set_stepping(self, is_stepping: bool) -> None:
        self._is_stepping = is_stepping
        for model, strategy in zip(self.models, self._strategies, strict=True):
            strategy.set_gradient_sync(model, is_stepping)

    def _end_batch(self) -> None:
        """The loop calls it after each `train_batch()`."""
        for scheduler in self.lr_schedulers:
            scheduler.step_when_due(
                self.current_train_batch() + 1,
                self._epoch_index + 1 if self._is_epoch_end else None,
                self._aggregation_frequency,
            )
