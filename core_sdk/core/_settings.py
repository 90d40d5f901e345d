"""The arguments of `init()` about the process itself, which may execute an attempt or only write to a trial."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec
from msgspec import field

from core_sdk._ground.environment import StopNoticeSettings, figures_interval_s, known_grace_s
from core_sdk.core._preempt import PreemptMode, monotonic_deadline
from core_sdk.core._preempt._clouds import Cloud, chosen_clouds
from core_sdk.core._train import TensorboardMode


class ProcessSettings(msgspec.Struct, frozen=True):
    """The arguments and variables that concern this process, checked."""

    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO
    stop_at: float | None = None
    """The time of `time.monotonic()` at which `should_preempt()` becomes true."""
    clouds: Sequence[Cloud] = ()
    grace_s: float | None = field(default_factory=known_grace_s)
    figures_s: float | None = field(default_factory=figures_interval_s)
    """The time between two samples of the machine's figures; None if there are to be none."""

    @classmethod
    def given(
        cls,
        preempt_mode: PreemptMode,
        tensorboard_mode: TensorboardMode,
        deadline: float | datetime.timedelta | datetime.datetime | None,
        stop_notices: str | Sequence[str] | None,
    ) -> ProcessSettings:
        """Returns what the arguments of `init()` say. Raises `ValueError` or `TypeError`."""
        return cls(
            PreemptMode(preempt_mode),
            TensorboardMode(tensorboard_mode),
            monotonic_deadline(deadline),
            chosen_clouds(stop_notices, StopNoticeSettings.read()),
        )
