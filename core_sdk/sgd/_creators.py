"""The arguments of a trainer that are sent to its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

Function = Callable[..., Any]
SchedulerStep = Literal["batch", "epoch", "manual"] | None

_REQUIRED = ("model_creator", "data_creator", "optimizer_creator", "loss_creator")
_OPTIONAL = ("scheduler_creator", "train_function", "validation_function", "initialization_hook")


@dataclass(frozen=True)
class Creators:
    """The arguments of a `PyTorchTrainer` that its workers need.

    The first four may be None if there is a `training_operator_cls`, whose `setup()` then registers what they make.
    """

    model_creator: Function | None
    data_creator: Function | None
    optimizer_creator: Function | None
    loss_creator: Function | None
    scheduler_creator: Function | None
    train_function: Function | None
    validation_function: Function | Literal[False] | None
    initialization_hook: Function | None
    config: dict[str, Any]
    dataloader_config: Mapping[str, Any]
    batch_size: int
    """The samples of one batch on all workers together."""
    use_gpu: bool
    use_fp16: bool
    scheduler_step_freq: SchedulerStep
    training_operator_cls: type[Any] | None = None
    seed: int = 0
    trial_id: int = 0

    def __post_init__(self) -> None:
        """Raises `TypeError` for what is no function, and `ValueError` for other wrong options."""
        optional = _OPTIONAL if self.training_operator_cls is None else _REQUIRED + _OPTIONAL
        for name in _REQUIRED + _OPTIONAL:
            function = getattr(self, name)
            if not callable(function) and not (name in optional and not function):
                raise TypeError(f"{name} is a {type(function).__name__}; it must be a function")
        if isinstance(self.loss_creator, torch.nn.Module):
            raise TypeError("loss_creator is a loss; give its class, or a function of config that returns one")
        if refused := sorted({"dataset", "batch_size", "batch_sampler"} & self.dataloader_config.keys()):
            raise ValueError(
                f"dataloader_config has {', '.join(refused)}: the trainer makes the batches. Pass its own batch_size=, "
                "and return the datasets from data_creator()"
            )
        if self.scheduler_step_freq not in ("batch", "epoch", "manual", None):
            raise ValueError(
                f"scheduler_step_freq is {self.scheduler_step_freq!r}; it must be 'batch', 'epoch', 'manual' or None"
            )


def as_list(created: Any) -> list[Any]:
    """Returns the objects that a creator has returned, one or several, as a list."""
    return list(created) if isinstance(created, list | tuple) else [created]


def as_given(created: list[Any]) -> Any:
    """Returns the objects as users' functions get them: one object by itself, or the list of several."""
    return created[0] if len(created) == 1 else created
