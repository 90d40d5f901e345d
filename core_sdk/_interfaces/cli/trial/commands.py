"""The commands of `core-sdk trial`."""

from __future__ import annotations

from typing import ClassVar

from core_sdk._interfaces.cli._command_after_dashes import CommandAfterDashes
from core_sdk._interfaces.cli._group import Lazy, LazyGroup, command_group

_TRIAL = "core_sdk._interfaces.cli.trial"


class _Trial(LazyGroup):
    lazy: ClassVar = {
        "list": Lazy(f"{_TRIAL}.looking:list_trials", reads_homes=True),
        "describe": Lazy(f"{_TRIAL}.looking:describe", reads_homes=True),
        "metrics": Lazy(f"{_TRIAL}.reports:metrics", reads_homes=True),
        "time": Lazy(f"{_TRIAL}.time_ledger:trial_time", reads_homes=True),
        "media": Lazy(f"{_TRIAL}.media:media", reads_homes=True),
        "plot": Lazy(f"{_TRIAL}.plot:plot", reads_homes=True),
        "logs": Lazy(f"{_TRIAL}.logs:logs", reads_homes=True),
        "download": Lazy(f"{_TRIAL}.looking:download", reads_homes=True),
        "tensorboard": Lazy(f"{_TRIAL}.looking:tensorboard", reads_homes=True),
        "profile": Lazy(f"{_TRIAL}.profiling:profile", reads_homes=True),
        "pause": Lazy(f"{_TRIAL}.steering:pause", reads_homes=True),
        "kill": Lazy(f"{_TRIAL}.steering:kill", reads_homes=True),
        "resume": Lazy(f"{_TRIAL}.steering:resume", cls=CommandAfterDashes, reads_homes=True),
        "continue": Lazy(f"{_TRIAL}.steering:continue_", cls=CommandAfterDashes, reads_homes=True),
        **{
            name: Lazy(f"{_TRIAL}.changing:{name}", reads_homes=True)
            for name in ("rename", "note", "label", "archive", "unarchive", "delete")
        },
        **{name: Lazy(f"{_TRIAL}.evidence:{name}", reads_homes=True) for name in ("evidence", "tree", "verdict")},
        "export": Lazy(f"{_TRIAL}.archive:export"),
        "import": Lazy(f"{_TRIAL}.archive:import_file"),
    }


app = command_group(cls=_Trial)
