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
    num_random: int = 0,
    tolerance: float = 0.0,
    resume_with: Sequence[str] = (),
    metrics_from: str = "",
    ranks: Sequence[int] = (),
    seed: int = 1,
    keep_in: str | Path | None = None,
) -> ResumeReport:
    """Trains the command undisturbed and disturbed, as `core-sdk check-resume` does, and returns what was found.

    Each training has a home of its own and the trial seed `seed`, and ends at the step `num_steps`: by default after
    200 reports, or at its own end. `budget_s` is the time for everything: the undisturbed training is stopped after a
    quarter of it, and moments for which too little is left are not tried. `moments` are names, such as "kill", or
    numbers of steps; by default all that `core-sdk check-resume --help` names, unless the seed chooses `num_random`
    moments. `tolerance` is the share by which values may differ.

    For a script that has checkpoints of its own, `resume_with` are the arguments that make it go on, "{dir}" in the
    command is a directory of each training's own, and `metrics_from`, below "{dir}", is where it writes its metrics.
    "{ranks}" in the command is the first of `ranks`, and after the resume the second one. With `keep_in` the homes and
    the output stay in that directory.

    Blocks for (2 + number of moments) times as long as the training. The command inherits the environment and the
    working directory. Raises `ValueError` for an unknown moment, or for a command without the "{dir}" or "{ranks}" that
    it needs. A report that is not exact raises nothing before `assert_exact()`.
    """
    return ResumeCheck(
        command,
        num_steps=num_steps,
        budget_s=budget_s,
        moments=moments,
        num_random=num_random,
        tolerance=tolerance,
        resume_with=resume_with,
        metrics_from=metrics_from,
        ranks=ranks,
        seed=seed,
        keep_in=None if keep_in is None else Path(keep_in),
    ).run()
