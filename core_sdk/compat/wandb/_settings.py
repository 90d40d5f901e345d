"""The settings of a run, and the levels of alerts."""

from __future__ import annotations

import enum
from typing import Any

_ARGUMENTS = {
    "entity": "entity",
    "mode": "mode",
    "project": "project",
    "reinit": "reinit",
    "resume": "resume",
    "root_dir": "dir",
    "run_group": "group",
    "run_id": "id",
    "run_job_type": "job_type",
    "run_name": "name",
    "run_notes": "notes",
    "run_tags": "tags",
    "save_code": "save_code",
    "sync_tensorboard": "sync_tensorboard",
}


class AlertLevel(enum.Enum):
    """The urgency of an alert."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class Settings:
    """Settings by their names, for `init(settings=…)`. Those that are about wandb's own service change nothing."""

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `init()` that the settings give."""
        return {_ARGUMENTS[name]: value for name, value in vars(self).items() if name in _ARGUMENTS}

    @property
    def has_figures_of_machine(self) -> bool:
        """Whether the figures of the machine are recorded."""
        return not any(getattr(self, name, False) for name in ("x_disable_stats", "_disable_stats"))
