"""The times at which a learning-rate scheduler makes its steps."""

from __future__ import annotations

import enum
from typing import Any


class LRScheduler:
    """A registered scheduler of torch's, which is saved, restored, and stepped when a step is due."""

    class StepMode(enum.Enum):
        """The events after which the scheduler makes a step. `frequency` counts from the start of the training.

        `STEP_EVERY_EPOCH`: after every `frequency`-th epoch.
        `STEP_EVERY_BATCH`: after every `frequency`-th batch. If the optimizer steps only every few batches, all steps
        that are due for these batches follow the optimizer's step.
        `STEP_EVERY_OPTIMIZER_STEP`: after every `frequency`-th step of the optimizer.
        `MANUAL_STEP`: the trial calls `step()`.
        """

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: StepMode, frequency: int = 1) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            raise TypeError(f"step_mode is {step_mode!r}; it must be a member of LRScheduler.StepMode")
        if frequency < 1:
            raise ValueError(f"frequency is {frequency}; it must be at least 1")
        self._scheduler = scheduler
        self._step_mode = step_mode
        self._frequency = frequency

    def step(self, *args: Any, **kwargs: Any) -> None:
        self._scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> list[float]:
        return list(self._scheduler.get_last_lr())

    def state_dict(self) -> dict[str, Any]:
        return dict(self._scheduler.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state_dict)

    def step_when_due(self, batches: int, ended_epochs: int | None, aggregation_frequency: int) -> None:
        """Makes the steps that are due when `batches` are trained; `ended_epochs` is given at the end of an epoch."""
        for _ in range(num_steps_due(self._step_mode, self._frequency, batches, ended_epochs, aggregation_frequency)):
            self._scheduler.step()


def num_steps_due(
    mode: LRScheduler.StepMode, frequency: int, batches: int, ended_epochs: int | None, aggregation_frequency: int
) -> int:
    """Returns the number of steps that a scheduler makes after batch number `batches`, counted from 1.

    `ended_epochs` counts the epochs that have ended, if this batch was the last one of an epoch.
    """
    if mode is LRScheduler.StepMode.MANUAL_STEP:
        return 0
    if mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
        return int(ended_epochs is not None and ended_epochs % frequency == 0)
    if batches % aggregation_frequency:
        return 0
    if mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
        return int(batches // aggregation_frequency % frequency == 0)
    return batches // frequency - (batches - aggregation_frequency) // frequency
