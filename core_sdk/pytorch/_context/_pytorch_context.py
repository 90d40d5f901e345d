"""The context of a `PyTorchTrial`, which wraps its models and optimizers, computes gradients and makes steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from core_sdk._runtime.lr_scheduler import LRScheduler
from core_sdk._runtime.precision import autocasting
from core_sdk._runtime.torch_runtime import TorchRuntime
from core_sdk.pytorch._context._trial_context import TrialContext
from core_sdk.pytorch._run import TrialRun

_Models = TypeVar("_Models")
_Optimizers = TypeVar("_Optimizers")


class PyTorchExperimentalContext:
    """The parts of the context that may change: `context.experimental`."""

    def __init__(self, run: TrialRun[TorchRuntime]) -> None:
        self._run = run

    def use_amp(self) -> None:
        """Trains all models in mixed precision: with autocast, and on a GPU with scaled losses.

        Call it before `wrap_model()`. Models then return float32. `backward()` scales the loss, and
        `step_optimizer()` unscales the gradients before it clips them.
        """
        _check_nothing_is_wrapped(self._run.runtime)
        self._run.runtime.use_amp()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accepts data loaders of any class, and samplers that draw another order each time.

        The trial itself must divide the data of such a loader among the ranks.
        """
        self._run.checks_datasets = False

    def disable_auto_to_device(self) -> None:
        """Leaves batches on the device where the loader has put them. `context.to_device()` moves them."""
        self._run.moves_batches = False


class PyTorchTrialContext(TrialContext):
    """The context that `pytorch.init()` makes, and that the trial's `__init__()` gets.

    Wrapped objects are trained on all ranks, saved in each checkpoint and restored from it, in the order of wrapping.
    """

    def __init__(self, run: TrialRun[TorchRuntime]) -> None:
        super().__init__(run)
        self._runtime = run.runtime
        self.models: list[nn.Module] = self._runtime.models
        self.optimizers: list[Optimizer] = self._runtime.optimizers
        self.lr_schedulers: list[LRScheduler] = self._runtime.lr_schedulers
        self.experimental = PyTorchExperimentalContext(run)

    def wrap_model(
        self,
        model: nn.Module,
        strategy: str | None = None,
        compile: bool | Mapping[str, Any] = False,
        **options: Any,
    ) -> nn.Module:
        """Moves a model to `device`, and spreads it over the ranks. Returns the model to call. Collective.

        Every attribute of the model is one of the returned model, too. On several ranks `options` go to torch's
        `DistributedDataParallel`, such as `find_unused_parameters=True`; a single rank checks only their names.

        With `strategy="fsdp"` each rank keeps a part of the parameters, gradients and optimizer states. `options` are
        those of torch's `fully_shard()`, such as `mp_policy`, and `units`: the class of the submodules that are
        gathered one at a time, or a tuple of classes. By default these are the elements of each `nn.ModuleList`.

        `compile` is True, or the arguments of `torch.compile()`, such as `{"mode": "max-autotune"}`.
        """
        return self._runtime.wrap_model(model, strategy, compile, options)

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
        return self._runtime.wrap_optimizer(
            optimizer, backward_passes_per_step, fp16_compression, average_aggregated_gradients
        )

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1) -> Any:
        """Registers a scheduler, and returns it. The `Trainer` calls its `step()`, unless the mode is `MANUAL_STEP`."""
        self._runtime.wrap_lr_scheduler(lr_scheduler, step_mode, frequency)
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Registers a `torch.amp.GradScaler` that the trial uses itself, and returns it. Call it before `wrap_model()`.

        The trial scales its losses, calls `unscale_()` before it clips gradients, gives the scaler to
        `step_optimizer()`, and calls `update()` after that. `experimental.use_amp()` does all of this itself.
        """
        _check_nothing_is_wrapped(self._runtime)
        self._runtime.precision.register(scaler)
        return scaler

    def autocast_forward_pass(self, to_wrap: nn.Module) -> nn.Module:
        """Makes the model compute in mixed precision and return float32. Returns the same model."""
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
        self._runtime.use_amp()
        return models, optimizers

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Adds the gradients of `loss` to the models' parameters. The arguments are torch's."""
        loss = self._runtime.precision.scaled(loss)
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
        `auto_zero_grads=False` the trial sets gradients to zero itself. `scaler` is what `wrap_scaler()` returned.
        """
        has_stepped = self._runtime.step(optimizer, clip_grads, scaler)
        if has_stepped and auto_zero_grads:
            optimizer.zero_grad()
        elif not has_stepped and not auto_zero_grads:
            raise ValueError("step_optimizer(auto_zero_grads=False) needs an aggregation_frequency of 1")


def _check_nothing_is_wrapped(runtime: TorchRuntime) -> None:
    """Raises `ValueError` if a model is wrapped already, which the precision would not apply to."""
    if runtime.models:
        raise ValueError("call wrap_scaler(), or experimental.use_amp(), before wrap_model()")
