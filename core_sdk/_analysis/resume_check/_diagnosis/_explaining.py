"""Adds to a result where a training has gone on, and why it differs. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core_sdk._analysis.resume_check._diagnosis._diagnosing import diagnose
from core_sdk._analysis.resume_check._report import MomentResult
from core_sdk._analysis.resume_check._training import AttemptFacts
from core_sdk.core._recorders._fingerprints import Fingerprint


def explained(
    result: MomentResult,
    attempts: Sequence[AttemptFacts],
    undisturbed: Sequence[Fingerprint],
    unsteady: frozenset[str],
    *,
    last_step: int | None,
) -> MomentResult:
    """Returns the result with its causes. `last_step` is that at which the undisturbed training ended by itself."""
    before, after = attempts[-2:]
    reached = after.reports[-1].steps_completed if after.reports else 0
    if result.verdict in ("exact", "passing"):
        if (step := _repeated_step(after)) is not None:
            words = f"trained step {step} again, although it had saved a checkpoint of step {after.resumed_steps}"
            result = replace(result, verdict="differs", words=f"differs: {words}")
        elif last_step is not None and reached > last_step:
            words = f"went on to step {reached}, although it ended after step {last_step} undisturbed"
            result = replace(result, verdict="differs", words=f"differs: {words}")
    if result.verdict not in ("differs", "passing"):
        return result
    return replace(result, causes=tuple(diagnose(undisturbed, after.fingerprints, unsteady, before.fingerprints)))


def _repeated_step(after: AttemptFacts) -> int | None:
    """Returns the first step that was trained although the checkpoint is of a later one, if any."""
    steps = (each.steps_completed for each in after.reports if each.group != "validation")
    return next((each for each in steps if after.resumed_steps is not None and each <= after.resumed_steps), None)
