"""Judges how a disturbed training has gone on. All functions are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from core_sdk._analysis.resume_check._comparing import (
    Difference,
    Reports,
    find_differences,
    is_equal,
    is_passing,
    metric_name,
    metric_names,
)
from core_sdk._analysis.resume_check._moments import Moment
from core_sdk._analysis.resume_check._report import CurvePoint, MomentResult, Verdict
from core_sdk._analysis.resume_check._training import AttemptFacts

_MAX_DIFFERENCES = 3
_PERHAPS_TOO_EARLY = ", perhaps since it had saved nothing yet"
_ROUNDING = 1e-5
"""The share of a value by which sums of 32-bit numbers in another order may differ."""
_NUM_BEFORE, _NUM_AFTER = 20, 40
"""The points of a curve before and after the first one that differs."""


def judge(
    moment: Moment,
    attempts: Sequence[AttemptFacts],
    expected: Reports,
    found: Reports,
    *,
    ignored: frozenset[str] = frozenset(),
    tolerance: float = 0.0,
) -> MomentResult:
    """Returns the result of a training whose last attempt has gone on to the end of what is compared."""
    before, after = attempts[-2], attempts[-1]
    stopped_at = before.reports[-1].steps_completed if before.reports else 0
    resumed_at = resumed_step(after, expected)
    differences = find_differences(expected, found, ignored=ignored, tolerance=tolerance)
    steps_lost = max(0, stopped_at - resumed_at)
    num_saves = sum(each.num_saves for each in attempts)
    # A training that is killed before its first save has nothing to go on from.
    is_unsaved = any(each.how == "kill" for each in moment.disturbances) and after.resumed_steps == 0
    verdict: Verdict = "exact"
    if _has_begun_anew(after, expected) and not is_unsaved:
        verdict = "began anew"
    elif differences:
        verdict = "passing" if is_passing(differences, expected) else "differs"
    words = _words(verdict, differences, expected)
    if verdict == "began anew":
        is_known = after.resumed_steps is not None
        words += "" if num_saves else ", and nothing was saved before" if is_known else _PERHAPS_TOO_EARLY
    elif steps_lost:
        words += f". It went on from step {resumed_at}, and trained {steps_lost} step{'s' * (steps_lost > 1)} twice"
    return MomentResult(
        moment.name,
        moment.words,
        verdict,
        words,
        stopped_at,
        tuple(differences),
        curve=_curve(differences, expected, found),
        save_s=before.save_s,
        first_report_s=after.first_report_s,
        steps_lost=None if verdict == "began anew" else steps_lost,
    )


def with_tensors(result: MomentResult, expected: Mapping[str, str], found: Mapping[str, str]) -> MomentResult:
    """Returns the result, which is "differs" if tensors of the last checkpoint do; as it is if none were `found`."""
    differing = [name for name, digest in expected.items() if found.get(name) != digest] if found else []
    if not differing:
        return result
    more = f" and {len(differing) - _MAX_DIFFERENCES} more" if len(differing) > _MAX_DIFFERENCES else ""
    named = ", ".join(differing[:_MAX_DIFFERENCES]) + more
    words = f"differs: every number is the same, but tensors of the last checkpoint are not: {named}"
    return replace(result, verdict="differs", words=words, tensors=tuple(differing))


def differs_by_rounding(result: MomentResult) -> bool:
    """Returns whether the first values that differ do so by a few of their last bits."""
    if result.verdict != "differs" or not result.differences:
        return False
    first = [each for each in result.differences if each.step == result.differences[0].step]
    return all(is_equal(each.expected, each.found, _ROUNDING) for each in first)


def resumed_step(attempt: AttemptFacts, expected: Reports) -> int:
    """Returns the step from which an attempt has gone on, by its checkpoint or by its first report."""
    if attempt.resumed_steps is not None:
        return attempt.resumed_steps
    first = attempt.reports[0].steps_completed if attempt.reports else 0
    return max((step for step, _, _ in expected if step < first), default=0)


def not_deterministic(first: Reports, second: Reports) -> str:
    """Returns what is said of a script whose undisturbed trainings differ."""
    differences = find_differences(first, second)
    return (
        f"two undisturbed trainings differ from step {differences[0].step} on: {differences[0]}. Make the script "
        "deterministic first: seed all generators (loop.seed_all(seed)), call "
        "torch.use_deterministic_algorithms(True), or give --tolerance"
    )


def _has_begun_anew(after: AttemptFacts, expected: Reports) -> bool:
    """Returns whether the resumed attempt has reported the very first step again."""
    first_step = next(iter(expected))[0]
    return bool(after.reports) and after.reports[0].steps_completed <= first_step


def _words(verdict: Verdict, differences: Sequence[Difference], expected: Reports) -> str:
    if verdict == "began anew":
        return "began anew: the resumed training has reported its first step again"
    if verdict == "exact":
        return "exact"
    names = list(dict.fromkeys(each.metric for each in differences))
    if verdict == "passing":
        last = max(each.step for each in differences)
        return f"exact but for {', '.join(names)} up to step {last}, as a mean since the start of the process differs"
    first = differences[0].step
    shown = [str(each) for each in differences if each.step == first][:_MAX_DIFFERENCES]
    exact = sorted(set(metric_names(expected)) - set(names))
    rest = f". Exact: {', '.join(exact)}" if exact else ""
    return f"differs from step {first} on: {'; '.join(shown)}{rest}"


def _curve(differences: Sequence[Difference], expected: Reports, found: Reports) -> tuple[CurvePoint, ...]:
    if not differences:
        return ()
    points = [
        CurvePoint(step, value, found.get((step, group, name)))
        for (step, group, name), value in expected.items()
        if metric_name(group, name) == differences[0].metric
    ]
    place = next(place for place, each in enumerate(points) if each.step >= differences[0].step)
    return tuple(points[max(0, place - _NUM_BEFORE) : place + _NUM_AFTER])
