"""Checks for the tests of your own project."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from core_sdk._analysis.resume_check import MomentResult, ResumeCheck, ResumeReport

__all__ = ["MomentResult", "ResumeReport", "check_resume"]


def check_resume(
    command: Sequence[str],
    *,
    num_steps: int | None = None,
    budget_s: float = 300.0,
    moments: Collection[str | int] | None = None,
    tolerance: float = 0.0,
    seed: int = 1,
    keep_in: str | Path | None = None,
) -> ResumeReport:
    """Trains the command undisturbed and disturbed, as `core-sdk check-resume` does, and returns what was found.

    Each training has a home of its own and the trial seed `seed`, and ends at the step `num_steps`: by default after
    200 reports, or after `budget_s` seconds of the undisturbed training, or at its own end. `moments` are names, such
    as "kill", or numbers of steps; by default all that `core-sdk check-resume --help` names. `tolerance` is the share
    by which values may differ. With `keep_in` the homes and the output stay in that directory.

    Blocks for (2 + number of moments) times as long as the training. The command inherits the environment and the
    working directory. Raises `ValueError` for an unknown moment. A report that is not exact raises nothing before
    `assert_exact()`.
    """
    keep = None if keep_in is None else Path(keep_in)
    return ResumeCheck(
        command,
        num_steps=num_steps,
        budget_s=budget_s,
        moments=moments,
        tolerance=tolerance,
        seed=seed,
        keep_in=keep,
    ).run()
