"""The context of a `PyTorchTrial`, which wraps its models and optimizers, computes gradients and makes steps."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from core_sdk.loop.mixed_precision import autocasting
from core_sdk.pytorch._context._compilation import compile_in_place
from core_sdk.pytorch._context._experimental import PyTorchExperimentalContext
from core_sdk.pytorch._context._trial_context import TrialContext, TrialSetup
from core_sdk.pytorch._lr_scheduler import LRScheduler
from core_sdk.pytorch._strategies import OptimizerStep, Strategy, named_strategy, parameters_of

logger = logging.getLogger("core_sdk.pytorch")

_Models = TypeVar("_Models")
_Optimizers = TypeVar("_Optimizers")


class PyTorchTrialContext(TrialContext):
    """The context that `pytorch.init()` makes, and that the trial's `__init__()` gets.

    Wrapped objects are trained on all ranks, saved in each checkpoint and restored from it, in the order of wrapping.
    """

    def __init__(self, setup: TrialSetup, *, strategy: Strategy, aggregation_frequency: int = 1) -> None:
        super().__init__(setup)
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.experimental = PyTorchExperimentalContext(self, self._use_amp)
        self._strategy = strategy
        self._strategies: list[Strategy] = []
        self._steps: dict[Optimizer, OptimizerStep] = {}
        self._aggregation_frequency = aggregation_frequency
        self._is_stepping = aggregation_frequency == 1
        self._scaler: Any = None
        self._autocasts = False
        self._automatic_scaler: Any = None
        """The scaler, if this context scales losses with it."""
        self._has_scaled_step = False
        # The configuration's value, for optimizers without a value of their own.
        self._averages_gradients = True
        self._compresses_gradients = False

    def wrap_model(
        self,
        model: nn.Module,
        strategy: str | None = None,
        compile: bool | Mapping[str, Any] = False,
        **options: Any,
    ) -> nn.Module:
        """Moves a model to `device`, and spreads it over the ranks. Returns the model to call. Collective.

        Every attribute of the model is one of the returned model, too. On several ranks `options` are those of torch's
        `DistributedDataParallel`, such as `find_unused_parameters=True`; a single rank checks only their names.

        With `strategy="fsdp"` each rank keeps a part of the parameters, gradients and optimizer states. `options` are
        those of torch's `fully_shard()`, such as `mp_policy`, and `units`: the class of the submodules that are
        gathered one at a time, or a tuple of classes. By default these are the elements of each `nn.ModuleList`.

        `compile` is True, or the arguments of `torch.compile()`, such as `{"mode": "max-autotune"}`.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"wrap_model() takes a torch.nn.Module, not {type(model).__name__}")
        if not isinstance(compile, bool | Mapping):
            raise TypeError(f"compile is {compile!r}; it must be True, False, or a dict of torch.compile()'s arguments")
        if any(model is known or model is strategy_.inner_model(known) for known, strategy_ in self._spread_models()):
            raise ValueError(f"this {type(model).__name__} is wrapped already: call wrap_model() once for each model")
        if self._autocasts and self._core_context is not None:
            model = autocasting(model, self.device)
        chosen = named_strategy(strategy, self._strategy)
        wrapped = chosen.wrap_model(model, self.device, options)
        if compile is not False and self._core_context is not None:
            compile_in_place(wrapped, {} if compile is True else compile)
        self.models.append(wrapped)
        self._strategies.append(chosen)
        return wrapped

    def _spread_models(self) -> list[tuple[nn.Module, Strategy]]:
        return list(zip(self.models, self._strategies, strict=True))

    def wrap_optimizer(
        self,
        optimizer: Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> Optimizer:
        """Registers an optimizer of wrapped models. Returns the optimizer to use, from schedulers on.

        A step uses the mean of the gradients of `aggregation_frequency` batches, or their sum with
        `average_aggregated_gradients=False`. The other arguments are for Horovod: how many times a batch calls
        `backward()` for one parameter, and whether gradients are sent as float16.
        """
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"wrap_optimizer() takes a torch.optim.Optimizer, not {type(optimizer).__name__}")
        if optimizer in self._steps:
            raise ValueError(f"this {type(optimizer).__name__} is wrapped already")
        if backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}; it must be at least 1")
        passes = backward_passes_per_step * self._aggregation_frequency
        is_compressed = self._compresses_gradients if fp16_compression is None else fp16_compression
        is_averaged = self._averages_gradients if average_aggregated_gradients is None else average_aggregated_gradients
        wrapped = self._strategy.wrap_optimizer(optimizer, self._named(optimizer), passes, is_compressed)
        divisor = self._aggregation_frequency if is_averaged else 1
        self._steps[wrapped] = self._strategy.optimizer_step(wrapped, divisor)
        self.optimizers.append(wrapped)
        return wrapped

    def _named(self, optimizer: Optimizer) -> list[tuple[str, nn.Parameter]]:
        """Returns the optimizer's parameters, each with a unique name."""
        own = set(parameters_of(optimizer))
        everything = nn.ModuleList(self.models)
        return [(name, parameter) for name, parameter in everything.named_parameters() if parameter in own]

    def _check_parameters(self) -> None:
        """Raises `ValueError` for an optimizer that has no parameter of a wrapped model; warns if it lacks some."""
        known = {id(parameter) for model in self.models for parameter in model.parameters()}
        for optimizer in self.optimizers:
            kind, parameters = type(optimizer).__name__, parameters_of(optimizer)
            num_others = sum(id(parameter) not in known for parameter in parameters)
            if num_others == len(parameters):
                raise ValueError(
                    f"no parameter of the {kind} belongs to a wrapped model: call wrap_model() first, and build the "
                    "optimizer with the parameters of what it returns"
                )
            if num_others:
                logger.warning(
                    "%d parameters of the %s belong to no wrapped model: they are in no checkpoint", num_others, kind
                )

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1) -> Any:
        """Registers a scheduler, and returns it. The `Trainer` calls its `step()`, unless the mode is `MANUAL_STEP`."""
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

    def wrap_scaler(self, scaler: Any) -> Any:
        """Registers a `torch.amp.GradScaler` that the trial uses itself, and returns it. Call it before `wrap_model()`.

        The trial scales its losses, calls `unscale_()` before it clips gradients, gives the scaler to
        `step_optimizer()`, and calls `update()` after that. `experimental.use_amp()` does all of this itself.
        """
        if self.models:
            raise ValueError("call wrap_scaler(), or experimental.use_amp(), before wrap_model()")
        self._register_scaler(scaler)
        return scaler

    def _register_scaler(self, scaler: Any) -> None:
        if self._scaler is not None:
            raise ValueError("there is a scaler already: call wrap_scaler(), or experimental.use_amp(), only once")
        self._scaler = scaler

    def _use_amp(self) -> None:
        self._turn_amp_on(self.wrap_scaler)

    def _turn_amp_on(self, register: Callable[[Any], object]) -> None:
        is_scaling = self.device.type == "cuda"  # bfloat16, which a CPU computes in, has the range of float32
        scaler = torch.amp.GradScaler(self.device.type, enabled=is_scaling)
        register(scaler)
        self._autocasts = True
        self._automatic_scaler = scaler if is_scaling else None

    def autocast_forward_pass(self, to_wrap: nn.Module) -> nn.Module:
        """Has the model compute in mixed precision and return float32. Returns the same model."""
        return autocasting(to_wrap, self.device)

    def configure_apex_amp(
        self,
        models: _Models,
        optimizers: _Optimizers,
        enabled: bool | None = True,
        opt_level: str | None = "O1",
        *unused: Any,
        **settings: Any,
    ) -> tuple[_Models, _Optimizers]:
        """Turns torch's own mixed precision on, since Apex's is no longer maintained. Returns its first two arguments.

        The level O0 is full precision; O1 and O2 are the same as `experimental.use_amp()`. All other arguments are
        ignored, with a warning.
        """
        if not enabled or opt_level == "O0":
            return models, optimizers
        if opt_level not in ("O1", "O2"):
            raise ValueError(f"opt_level is {opt_level!r}, which torch.amp has not: it must be O0, O1 or O2")
        warnings.warn(
            "Apex's mixed precision has ended, and torch.amp takes its place: call context.experimental.use_amp() "
            "before wrap_model() instead of configure_apex_amp()",
            FutureWarning,
            stacklevel=2,
        )
        self._turn_amp_on(self._register_scaler)
        for model, strategy in self._spread_models():
            autocasting(strategy.inner_model(model), self.device)
        return models, optimizers

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Adds the gradients of `loss` to those of the models' parameters. The arguments are those of torch."""
        if self._automatic_scaler is not None:
            loss = self._automatic_scaler.scale(loss)
        loss.backward(gradient, retain_graph, create_graph)  # type: ignore[no-untyped-call]

    def step_optimizer(
        self,
        optimizer: Optimizer,
        clip_grads: Callable[[list[nn.Parameter]], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any | None = None,
    ) -> None:
        """Makes a step with an optimizer that `wrap_optimizer()` has returned, and sets its gradients to zero.

        Call it once a batch. With an `aggregation_frequency` of n, it does nothing except on every n-th batch.
        `clip_grads` gets the parameters, whose gradients are then unscaled means over batches and ranks. With
        `auto_zero_grads=False` the trial sets gradients to zero itself. `scaler` is that of `wrap_scaler()`.
        """
        step = self._steps.get(optimizer)
        if step is None:
            raise ValueError(
                f"this {type(optimizer).__name__} is not wrapped: pass step_optimizer() what context.wrap_optimizer() "
                "returned"
            )
        if not self._is_stepping:
            self._check_accumulation(auto_zero_grads)
            return
        step.prepare()
        automatic = self._automatic_scaler
        if automatic is not None:
            scaler, self._has_scaled_step = automatic, True
        if clip_grads is not None:
            if automatic is not None:
                automatic.unscale_(optimizer)
            clip_grads(parameters_of(optimizer))
        step.step(scaler)
        if auto_zero_grads:
            optimizer.zero_grad()

    def _check_accumulation(self, auto_zero_grads: bool) -> None:
        if self._batch_index is None:
            raise RuntimeError(
                f"step_optimizer() with aggregation_frequency={self._aggregation_frequency} works inside of "
                "Trainer.fit(), which counts the batches"
            )
        if not auto_zero_grads:
            raise ValueError("step_optimizer(auto_zero_grads=False) needs an aggregation_frequency of 1")

    def _begin_batch(self, batch_index: int, epoch_index: int, is_epoch_start: bool, is_epoch_end: bool) -> None:
        super()._begin_batch(batch_index, epoch_index, is_epoch_start, is_epoch_end)
        if self._aggregation_frequency > 1:
            self._set_stepping((batch_index + 1) % self._aggregation_frequency == 0)

    def _set_stepping(self, is_stepping: bool) -> None:
        is_change = is_stepping is not self._is_stepping or self._batch_index == self._initial_batch
        if is_change and self._averages_once_a_step:
            for model, strategy in self._spread_models():
                strategy.set_gradient_sync(model, is_stepping)
        self._is_stepping = is_stepping

    def _warn_of_open_window(self) -> None:
        """Warns, at the end of a training, of gradients that no step has used."""
        num_batches = 0 if self._batch_index is None else (self._batch_index + 1) % self._aggregation_frequency
        if num_batches and self.distributed.is_chief:
            logger.warning(
                "the gradients of the last %d batches are kept in the checkpoint and not applied, since a step needs "
                "%d: a longer training goes on with them", num_batches, self._aggregation_frequency,
            )  # fmt: skip

    @property
    def _averages_once_a_step(self) -> bool:
        """Whether ranks average their gradients only before a step, and not after each batch.

        The gradients of split models are always averaged. Otherwise they would take the memory of a whole model, and
        could not be saved.
        """
        return self.distributed.size > 1 and not any(strategy.is_sharding for strategy in self._strategies)

    @property
    def _has_own_gradients(self) -> bool:
        """Whether this rank has gradients that are not yet averaged with those of other ranks, between two steps."""
        return self._batch_index is not None and not self._is_stepping and self._averages_once_a_step

    def _end_batch(self) -> None:
        super()._end_batch()
        if self._has_scaled_step:
            self._automatic_scaler.update()
            self._has_scaled_step = False
        for scheduler in self.lr_schedulers:
            scheduler.step_when_due(
                self.current_train_batch() + 1,
                self._epoch_index + 1 if self._is_epoch_end else None,
                self._aggregation_frequency,
            )
