"""The arguments of a trainer that are sent to its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Function = Callable[..., Any]
SchedulerStep = Literal["batch", "epoch"] | None


@dataclass(frozen=True)
class Creators:
    """The arguments of a `PyTorchTrainer` that its workers need."""

    model_creator: Function
    data_creator: Function
    optimizer_creator: Function
    loss_creator: Function
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
    seed: int
    trial_id: int


def as_list(created: Any) -> list[Any]:
    """Returns the objects that a creator has returned, one or several, as a list."""
    return list(created) if isinstance(created, list | tuple) else [created]


def as_given(created: list[Any]) -> Any:
    """Returns the objects as users' functions get them: one object by itself, or the list of several."""
    return created[0] if len(created) == 1 else created
