"""Decides what a job does when Slurm ends it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Fate = Literal["limit", "preempted", "requeued", "canceled", "asked"]


def fate_of(shown: Mapping[str, str], *, num_restarts: int, planned_end: str) -> Fate:
    """Returns the reason for which a job was sent SIGTERM.

    `shown` are the job's fields after the signal, as in `scontrol show job`. `planned_end` was its `EndTime` before:
    the end of its time, which is earlier now if the job was canceled. A job that is still RUNNING is not being ended:
    somebody has sent the signal alone, as by `scancel --batch --signal=TERM`.
    """
    if not shown:
        return "limit"  # Slurm does not answer
    if int(shown.get("Restarts") or 0) > num_restarts:
        return "requeued"
    if shown.get("PreemptTime", "None")[:1].isdigit():
        return "preempted"
    if shown.get("EndTime", "") < planned_end:
        return "canceled"
    return "asked" if shown.get("JobState") == "RUNNING" else "limit"


def follows(fate: Fate | None, *, is_complete: bool, has_progressed: bool) -> bool:
    """Returns whether another job has to be submitted. None stands for a training that has ended by itself.

    One that has stored nothing new within its time would not do so in the next job either.
    """
    return not is_complete and (fate == "preempted" or (fate == "limit" and has_progressed))
