"""The trial of a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_sdk import core
from core_sdk._execution.agent.driving import DrivenTrial
from core_sdk._ground.environment import num_ranks_started, run_info_used
from core_sdk._ground.records import recorded_config


class TrainerTrial:
    """The trial of a trainer that was given no Context, with its Context and its attempt."""

    def __init__(
        self, config: Mapping[str, Any], *, name: str | None, job_id: str | None, num_slots: int, **core_arguments: Any
    ) -> None:
        """`core_arguments` are further arguments of `core.init()`."""
        self._driven = DrivenTrial.begin(name=name, job_id=job_id, num_slots=num_slots)
        self.given_hparams: Mapping[str, Any] = self._driven.info.trial.hparams
        """The hyperparameters with which this attempt was started."""
        try:
            with run_info_used(self._driven.run_info_path):
                self.context = init_alone(config, **core_arguments)
        except BaseException:
            self._driven.withdraw()
            raise
        self.context.start()

    @property
    def log_path(self) -> Path | None:
        """The file for the output of the workers; None if the output is kept already."""
        return self._driven.log_path

    def end(self, error: BaseException | None) -> None:
        try:
            self.context.close(type(error) if error else None, error, error.__traceback__ if error else None)
        finally:
            self._driven.end_by(error)


def init_alone(config: Mapping[str, Any], **core_arguments: Any) -> core.Context:
    """Makes the Context of a program that leads workers, and is itself one process on any number of slots.

    `core_arguments` are further arguments of `core.init()`.
    """
    distributed = core.DistributedContext() if num_ranks_started() == 1 else None
    return core.init(distributed=distributed, hparams=recorded_config(config), **core_arguments)
