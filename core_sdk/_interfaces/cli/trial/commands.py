"""The commands of `core-sdk trial`."""

from __future__ import annotations

from typing import ClassVar

from core_sdk._interfaces.cli._command_after_dashes import CommandAfterDashes
from core_sdk._interfaces.cli._group import Lazy, LazyGroup, command_group

_TRIAL = "core_sdk._interfaces.cli.trial"


class _Trial(LazyGroup):
    lazy: ClassVar = {
        "list": Lazy(f"{_TRIAL}.looking:list_trials"),
        "describe": Lazy(f"{_TRIAL}.looking:describe"),
        "metrics": Lazy(f"{_TRIAL}.reports:metrics"),
        "time": Lazy(f"{_TRIAL}.time_ledger:trial_time"),
        "media": Lazy(f"{_TRIAL}.media:media"),
        "plot": Lazy(f"{_TRIAL}.plot:plot"),
        "logs": Lazy(f"{_TRIAL}.logs:logs"),
        "download": Lazy(f"{_TRIAL}.looking:download"),
        "tensorboard": Lazy(f"{_TRIAL}.looking:tensorboard"),
        "profile": Lazy(f"{_TRIAL}.profiling:profile"),
        "pause": Lazy(f"{_TRIAL}.steering:pause"),
        "kill": Lazy(f"{_TRIAL}.steering:kill"),
        "resume": Lazy(f"{_TRIAL}.steering:resume", cls=CommandAfterDashes),
        "continue": Lazy(f"{_TRIAL}.steering:continue_", cls=CommandAfterDashes),
        **{
            name: Lazy(f"{_TRIAL}.changing:{name}")
            for name in ("rename", "note", "label", "archive", "unarchive", "delete")
        },
        **{name: Lazy(f"{_TRIAL}.evidence:{name}") for name in ("evidence", "tree", "verdict")},
        "export": Lazy(f"{_TRIAL}.archive:export"),
        "import": Lazy(f"{_TRIAL}.archive:import_file"),
    }


app = command_group(cls=_Trial)
