"""Models that torch itself trains, or Horovod: copied to every rank, or split over the ranks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from core_sdk._runtime.gradients import (
    GRADIENT_FILES,
    pending_gradients,
    read_gradients,
    restore_gradients,
)
from core_sdk._runtime.lr_scheduler import LRScheduler
from core_sdk._runtime.precision import Precision, autocasting
from core_sdk._runtime.runtime import Ranks, Runtime
from core_sdk._runtime.strategies import OptimizerStep, Strategy, UntouchedStrategy, named_strategy, parameters_of
from core_sdk.errors import StateMismatchError
from core_sdk.loop._restoring import load_object
from core_sdk.loop._saving import put_back

logger = logging.getLogger("core_sdk.runtime")


class TorchRuntime(Runtime):
    """Models with a strategy each, and their optimizers and schedulers.

    An optimizer makes a step every `aggregation_frequency` batches.
    """

    def __init__(
        self,
        ranks: Ranks,
        device: torch.device,
        strategy: Strategy,
        *,
        aggregation_frequency: int = 1,
    ) -> None:
        """`strategy` is for models that name no other one. An `UntouchedStrategy` means that nothing is trained."""
        self._ranks = ranks
        self.device = device
        self.strategy = strategy
        self._aggregation_frequency = aggregation_frequency
        self._is_trained = not isinstance(strategy, UntouchedStrategy)
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.precision = Precision(device)
        self.averages_gradients = True
        """Whether steps use the mean of the gradients of several batches, for optimizers that do not say it."""
        self.compresses_gradients = False
        """Whether Horovod sends gradients as float16, for optimizers that do not say it."""
        self._strategies: list[Strategy] = []
        self._steps: dict[Optimizer, OptimizerStep] = {}
        self._is_stepping = aggregation_frequency == 1
        self._has_begun = False

    @property
    def data_ranks(self) -> Ranks:
        return self._ranks

    def wrap_model(
        self,
        model: nn.Module,
        strategy: str | None = None,
        compile: bool | Mapping[str, Any] = False,
        options: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """Returns the model to call in place of this one. Collective."""
        if not isinstance(model, nn.Module):
            raise TypeError(f"wrap_model() takes a torch.nn.Module, not {type(model).__name__}")
        if not isinstance(compile, bool | Mapping):
            raise TypeError(f"compile is {compile!r}; it must be True, False, or a dict of torch.compile()'s arguments")
        if any(model is known for known in [*self.models, *self._inner_models()]):
            raise ValueError(f"this {type(model).__name__} is wrapped already: call wrap_model() once for each model")
        if self._is_trained:
            model = self.precision.prepared(model)
        chosen = named_strategy(strategy, self.strategy)
        wrapped = chosen.wrap_model(model, self.device, options or {})
        if compile is not False and self._is_trained:
            _compile(wrapped, {} if compile is True else compile)
        self.models.append(wrapped)
        self._strategies.append(chosen)
        return wrapped

    def wrap_optimizer(
        self,
        optimizer: Optimizer,
        backward_passes_per_step: int = 1,
        is_compressed: bool | None = None,
        is_averaged: bool | None = None,
    ) -> Optimizer:
        """Returns the optimizer to use in place of this one."""
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"wrap_optimizer() takes a torch.optim.Optimizer, not {type(optimizer).__name__}")
        if optimizer in self._steps:
            raise ValueError(f"this {type(optimizer).__name__} is wrapped already")
        if backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}; it must be at least 1")
        passes = backward_passes_per_step * self._aggregation_frequency
        is_compressed = self.compresses_gradients if is_compressed is None else is_compressed
        is_averaged = self.averages_gradients if is_averaged is None else is_averaged
        wrapped = self.strategy.wrap_optimizer(optimizer, self._named(optimizer), passes, is_compressed)
        self._steps[wrapped] = self.strategy.optimizer_step(wrapped, self._aggregation_frequency if is_averaged else 1)
        self.optimizers.append(wrapped)
        return wrapped

    def wrap_lr_scheduler(self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int) -> None:
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

    def use_amp(self) -> None:
        """Computes in mixed precision from now on, also in models that are wrapped already."""
        self.precision.use_amp()
        for model in self._inner_models():
            autocasting(model, self.device)

    def step(
        self,
        optimizer: Optimizer,
        clip_grads: Callable[[list[nn.Parameter]], Any] | None = None,
        scaler: Any | None = None,
    ) -> bool:
        """Makes a step if this batch has one, and returns whether it has. `scaler` is the training's own."""
        step = self._steps.get(optimizer)
        if step is None:
            raise ValueError(
                f"this {type(optimizer).__name__} is not wrapped: pass step_optimizer() what context.wrap_optimizer() "
                "returned"
            )
        if not self._is_stepping:
            if not self._has_begun:
                raise RuntimeError(
                    f"step_optimizer() with aggregation_frequency={self._aggregation_frequency} works inside of "
                    "Trainer.fit(), which counts the batches"
                )
            return False
        step.prepare()
        scaler = self.precision.scaler_of_step(scaler)
        if clip_grads is not None:
            self.precision.unscale(optimizer)
            clip_grads(parameters_of(optimizer))
        step.step(scaler)
        return True

    def begin_batch(self, index: int, *, is_first: bool) -> None:
        self._has_begun = True
        if self._aggregation_frequency > 1:
            is_stepping = (index + 1) % self._aggregation_frequency == 0
            if (is_first or is_stepping is not self._is_stepping) and self._averages_once_a_step:
                for model, strategy in zip(self.models, self._strategies, strict=True):
                    strategy.set_gradient_sync(model, is_stepping)
            self._is_stepping = is_stepping

    def end_batch(self, num_batches: int, num_ended_epochs: int | None) -> None:
        self.precision.end_batch()
        for scheduler in self.lr_schedulers:
            scheduler.step_when_due(num_batches, num_ended_epochs, self._aggregation_frequency)

    def end_training(self, num_batches: int) -> None:
        num_unused = num_batches % self._aggregation_frequency
        if num_unused and self._ranks.rank == 0:
            logger.warning(
                "the gradients of the last %d batches are kept in the checkpoint and not applied, since a step needs "
                "%d: a longer training goes on with them", num_unused, self._aggregation_frequency,
            )  # fmt: skip

    def set_forward_sync(self, is_on: bool) -> None:
        for model, strategy in zip(self.models, self._strategies, strict=True):
            strategy.set_forward_sync(model, is_on)

    def check(self, owner: str) -> None:
        if not self.models:
            raise ValueError(f"{owner} has wrapped no model: call context.wrap_model(model) in its __init__()")
        if not self.optimizers:
            raise ValueError(
                f"{owner} has wrapped no optimizer: call context.wrap_optimizer(optimizer) in its __init__()"
            )
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

    @property
    def is_sharding(self) -> bool:  # type: ignore[override]
        return any(strategy.is_sharding for strategy in self._strategies)

    @property
    def writes_on_all_ranks(self) -> bool:  # type: ignore[override]
        return self.is_sharding or self._has_own_gradients

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "models_state_dict": self._model_states(),
            "optimizers_state_dict": [optimizer.state_dict() for optimizer in self.optimizers],
            "lr_schedulers_state_dict": [scheduler.state_dict() for scheduler in self.lr_schedulers],
        }
        if self.precision.scaler is not None:
            state["scaler_state_dict"] = self.precision.scaler.state_dict()
        gradients = pending_gradients(self.optimizers)
        if gradients is not None and not self._has_own_gradients:
            state["gradients"] = gradients
        return state

    def load_state_dict(self, state: dict[str, Any], kept: Collection[str]) -> None:
        if "models" in kept:
            load_all("model", self.models, state["models_state_dict"])
        if "optimizers" in kept:
            load_all("optimizer", self.optimizers, state["optimizers_state_dict"])
            # Empty if the losses were not scaled, as on a CPU.
            if self.precision.scaler is not None and state.get("scaler_state_dict"):
                self.precision.scaler.load_state_dict(state["scaler_state_dict"])
        if "lr_schedulers" in kept:
            load_all("learning-rate scheduler", self.lr_schedulers, state["lr_schedulers_state_dict"])

    def load_gradients(self, state: dict[str, Any]) -> None:
        if "gradients" in state:
            restore_gradients(self.optimizers, state["gradients"])

    def own_files(self, directory: Path) -> dict[str, Any]:
        gradients = pending_gradients(self.optimizers) if self._has_own_gradients else None
        return {} if gradients is None else {f"{GRADIENT_FILES}{self._ranks.rank}.pt": gradients}

    def read_parts(self, state: dict[str, Any], directory: Path) -> dict[str, Any]:
        part = "" if self._is_trained else "models_state_dict"
        state = put_back(state, directory, self._present, is_sharded=self.is_sharding, part=part)
        gradients = read_gradients(directory, self._ranks) if self._is_trained else None
        return state if gradients is None else {**state, "gradients": gradients}

    def _present(self) -> dict[str, Any]:
        from core_sdk.loop._sharded_tensors import presence  # slow to import

        optimizers = [presence(optimizer) for optimizer in self.optimizers]
        return {
            "models_state_dict": self._model_states(),
            "optimizers_state_dict": optimizers,
            "gradients": [optimizer["state"] for optimizer in optimizers],
        }

    @property
    def _averages_once_a_step(self) -> bool:
        """Whether ranks average their gradients only before a step, and not after each batch.

        The gradients of split models are always averaged. Otherwise they would take the memory of a whole model, and
        could not be saved.
        """
        return self._ranks.size > 1 and not self.is_sharding

    @property
    def _has_own_gradients(self) -> bool:
        """Whether this rank has gradients, between two steps, that are not yet averaged over the ranks."""
        return self._has_begun and not self._is_stepping and self._averages_once_a_step

    def _inner_models(self) -> list[nn.Module]:
        return [strategy.inner_model(model) for model, strategy in zip(self.models, self._strategies, strict=True)]

    def _model_states(self) -> list[dict[str, Any]]:
        """Returns the states to save, which are the same for every strategy and number of ranks."""
        return [model.state_dict() for model in self._inner_models()]

    def _named(self, optimizer: Optimizer) -> list[tuple[str, nn.Parameter]]:
        """Returns the optimizer's parameters, each with a unique name."""
        own = set(parameters_of(optimizer))
        everything = nn.ModuleList(self.models)
        return [(name, parameter) for name, parameter in everything.named_parameters() if parameter in own]


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


def _compile(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Makes calls of the model run its compiled forward pass. Its class, attributes and state do not change.

    `Module.compile()` does the same, but silently skips torch's own modules, such as `nn.Sequential`.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return model._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]

    model._compiled_call_impl = torch.compile(call, **arguments)
