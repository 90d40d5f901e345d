"""wandb's names for scripts that log to it: `import core_sdk.compat.wandb as wandb`.

A run is a trial, and `log()` is one report for each group of metrics, recorded when the call returns. Nothing is sent
anywhere. What wandb has and this module has not raises `AttributeError`, which says what to use instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core_sdk.compat.wandb import errors, plot, util
from core_sdk.compat.wandb._beginning import init
from core_sdk.compat.wandb._config import Config
from core_sdk.compat.wandb._missing import missing
from core_sdk.compat.wandb._run import Run
from core_sdk.compat.wandb._settings import AlertLevel, Settings
from core_sdk.compat.wandb._stored import Artifact
from core_sdk.compat.wandb._terminal import termerror, termlog, termwarn
from core_sdk.compat.wandb._values import Audio, Histogram, Html, Image, Table, Video
from core_sdk.compat.wandb.errors import CommError, Error, UsageError
from core_sdk.media import Figure as Plotly

if TYPE_CHECKING:
    from core_sdk.compat.wandb._rows import Summary

    run: Run | None
    config: Config
    summary: Summary

__version__ = "0.28.2"
"""The version of wandb whose names these are, which scripts ask for."""

__all__ = [
    "AlertLevel",
    "Artifact",
    "Audio",
    "CommError",
    "Config",
    "Error",
    "Histogram",
    "Html",
    "Image",
    "Plotly",
    "Run",
    "Settings",
    "Table",
    "UsageError",
    "Video",
    "__version__",
    "errors",
    "finish",
    "init",
    "login",
    "plot",
    "setup",
    "termerror",
    "termlog",
    "termwarn",
    "util",
]

_OF_RUN = frozenset(
    {
        "alert",
        "config",
        "define_metric",
        "log",
        "log_artifact",
        "log_code",
        "log_model",
        "mark_preempting",
        "save",
        "summary",
        "unwatch",
        "use_artifact",
        "use_model",
        "watch",
    }
)
"""The names that the module takes from the run that is active."""


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """Ends the active run, if there is one."""
    if (active := Run.active()) is not None:
        active.finish(exit_code, quiet)


def login(*args: object, **kwargs: object) -> bool:
    """Returns True: there is nobody to log in to."""
    return True


def setup(settings: Settings | None = None) -> None:
    """Does nothing: there is no service to start."""


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_RUN, "run"})


def __getattr__(name: str) -> Any:
    if name == "run":
        return Run.active()
    if name in _OF_RUN:
        if (active := Run.active()) is None:
            raise UsageError(f"wandb.{name} belongs to a run: call wandb.init() first")
        return getattr(active, name)
    raise AttributeError(missing(f"wandb.{name}"))
