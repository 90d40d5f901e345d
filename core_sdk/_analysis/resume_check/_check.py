"""Runs the undisturbed and the disturbed trainings, and judges them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core_sdk._analysis.resume_check._comparing import (
    Difference,
    Reports,
    find_differences,
    is_passing,
    unsteady_metrics,
)
from core_sdk._analysis.resume_check._diagnosis import diagnose, unsteady_parts
from core_sdk._analysis.resume_check._moments import MOMENTS, Moment, check_moments, choose_moments
from core_sdk._analysis.resume_check._training import PAUSED, AttemptFacts, CheckedTraining
from core_sdk.core._preempt._disturbance import Disturbance, How
from core_sdk.core._recorders import Fingerprint

Verdict = Literal["exact", "passing", "differs", "began anew", "did not stop", "failed"]

_MAX_DIFFERENCES = 3
_NUM_REPORTS = 200


@dataclass(frozen=True)
class MomentResult:
    """The result of disturbing the training at one moment."""

    name: str
    moment: str
    """The moment in words."""
    verdict: Verdict
    """"passing": some metrics differ after the resume, and are right again at the end, as a running mean is."""
    words: str
    """The verdict in words, with the first values that differ."""
    differences: tuple[Difference, ...] = ()
    causes: tuple[str, ...] = ()
    """The parts that the resumed training has forgotten, as far as its first steps show them."""
    save_s: float | None = None
    """The time from the stop to the end of the save that it causes, in seconds."""
    first_report_s: float | None = None
    """The time from `init()` of the resumed attempt to its first report, in seconds."""
    steps_lost: int | None = None
    """The steps that were trained twice."""

    @property
    def is_exact(self) -> bool:
        return self.verdict in ("exact", "passing")

    def lines(self) -> list[str]:
        return [f"{self.moment}: {self.words}", *(f"    {cause}" for cause in self.causes)]


@dataclass
class ResumeReport:
    """The result of a check."""

    command: list[str]
    problem: str = ""
    """The reason why the training could not be judged; empty if it was."""
    num_reports: int = 0
    """The reports of the undisturbed training that were compared."""
    last_step: int = 0
    not_compared: list[str] = field(default_factory=list)
    """The metrics that differ between two undisturbed trainings, such as times."""
    moments: list[MomentResult] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """Whether the training was judged, and goes on exactly at all moments."""
        return not self.problem and bool(self.moments) and all(each.is_exact for each in self.moments)

    def assert_exact(self) -> None:
        """Raises `AssertionError`, which lists what was found, unless the training goes on exactly."""
        if not self.is_exact:
            raise AssertionError("\n".join([self.problem or "the training does not go on exactly:", *self.lines()]))

    def lines(self) -> list[str]:
        """Returns the result of each moment as a line, with its causes below it."""
        return [line for each in self.moments for line in each.lines()]


class ResumeCheck:
    """Checks a command. `tell` gets a line whenever something is known."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        num_steps: int | None = None,
        budget_s: float = 300.0,
        moments: Collection[str | int] | None = None,
        how: How = "stop",
        tolerance: float = 0.0,
        seed: int = 1,
        keep_in: Path | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`num_steps`, by default 200 reports, and `budget_s` end the undisturbed training if it does not end before.

        `moments` are names of `MOMENTS`, or numbers of steps, where `how` says what happens. `tolerance` is the share
        by which values may differ. `keep_in` is a directory for the homes and the output of all trainings, which are
        removed otherwise. Raises `ValueError` for an unknown moment.
        """
        self._num_steps = num_steps
        self._budget_s = budget_s
        self._moments = check_moments(MOMENTS if moments is None else moments)
        self._how: How = how
        self._tolerance = tolerance
        self._seed = seed
        self._keep_in = keep_in
        self._tell = tell
        self.report = ResumeReport(list(command))
        self._undisturbed: tuple[Fingerprint, ...] = ()
        """The fingerprints of the undisturbed training."""
        self._unsteady_parts = frozenset[str]()

    def run(self) -> ResumeReport:
        """Checks, and returns the report. Blocks for (2 + number of moments) times the undisturbed training."""
        root = Path(tempfile.mkdtemp(prefix="core-sdk-check-resume-")) if self._keep_in is None else self._keep_in
        root.mkdir(parents=True, exist_ok=True)
        try:
            self._check(root)
        finally:
            if self._keep_in is None:
                shutil.rmtree(root, ignore_errors=True)
        return self.report

    def _check(self, root: Path) -> None:
        began_at = time.monotonic()
        first = self._training(root / "undisturbed-1")
        by_number = Disturbance("stop", number=_NUM_REPORTS)
        end_of_first = by_number if self._num_steps is None else Disturbance("stop", self._num_steps)
        facts = first.run_attempt(end_of_first, self._budget_s)
        if (problem := _unusable(facts, first)) is not None:
            self._give_up(problem)
            return
        took_s = time.monotonic() - began_at
        last = facts.reports[-1]
        is_ended = facts.status == 0
        end = None if is_ended else Disturbance("stop", last.steps_completed, last.group)
        timeout_s = 3 * took_s + 60
        expected = first.reports()
        self.report.num_reports, self.report.last_step = len(facts.reports), last.steps_completed
        until = "to its end" if is_ended else f"up to step {last.steps_completed}"
        self._tell(f"undisturbed {until}: {len(facts.reports)} reports in {took_s:.0f} s")

        second = self._training(root / "undisturbed-2")
        again = second.run_attempt(end, timeout_s)
        self._undisturbed = facts.fingerprints
        self._unsteady_parts = unsteady_parts(facts.fingerprints, again.fingerprints)
        unsteady = unsteady_metrics(expected, second.reports())
        steady = sorted({f"{group}.{name}" for _, group, name in expected} - unsteady)
        if not self._tolerance:
            self.report.not_compared = sorted(unsteady)
            if not steady:
                self._give_up(_not_deterministic(expected, second.reports()))
                return
        if unsteady:
            self._tell(f"not compared, since two undisturbed trainings differ: {', '.join(sorted(unsteady))}")

        for moment in choose_moments(facts.reports, facts.num_saves, self._moments, self._how):
            result = self._disturb(self._training(root / moment.name), moment, end, expected, timeout_s)
            self.report.moments.append(result)
            self._tell("\n".join(result.lines()))
        if not self.report.moments:
            self._give_up("there is no moment to disturb it at: the training has not reported often enough")

    def _training(self, directory: Path) -> CheckedTraining:
        return CheckedTraining(self.report.command, directory, seed=self._seed)

    def _give_up(self, problem: str) -> None:
        self.report.problem = problem

    def _disturb(
        self,
        training: CheckedTraining,
        moment: Moment,
        end: Disturbance | None,
        expected: Reports,
        timeout_s: float,
    ) -> MomentResult:
        attempts: list[AttemptFacts] = []
        for disturbance in (*moment.disturbances, end):
            facts = training.run_attempt(disturbance, timeout_s)
            attempts.append(facts)
            is_last = len(attempts) > len(moment.disturbances)
            if facts.status == 0 and not is_last:
                last_step = facts.reports[-1].steps_completed if facts.reports else 0
                words = f"did not stop: it went on to its end, at step {last_step}"
                return MomentResult(moment.name, moment.words, "did not stop", words)
            is_killed = not is_last and disturbance is not None and disturbance.how == "kill"
            if facts.status not in (0, PAUSED) and not is_killed:
                return MomentResult(moment.name, moment.words, "failed", _failed(facts, training))
        return self._judge(training, moment, attempts, expected)

    def _judge(
        self, training: CheckedTraining, moment: Moment, attempts: list[AttemptFacts], expected: Reports
    ) -> MomentResult:
        before, after = attempts[-2], attempts[-1]
        stopped_at = before.reports[-1].steps_completed if before.reports else 0
        differences = find_differences(
            expected,
            training.reports(),
            ignored=frozenset(self.report.not_compared),
            tolerance=self._tolerance,
        )
        verdict: Verdict = "exact"
        was_killed = any(each.how == "kill" for each in moment.disturbances)
        if (after.resumed_steps or not was_killed) and _has_begun_anew(after, expected):
            verdict = "began anew"
        elif differences:
            verdict = "passing" if is_passing(differences, expected) else "differs"
        causes = diagnose(self._undisturbed, after.fingerprints, self._unsteady_parts) if verdict == "differs" else []
        return MomentResult(
            moment.name,
            moment.words,
            verdict,
            _words(verdict, differences, expected),
            tuple(differences),
            tuple(causes),
            save_s=before.save_s,
            first_report_s=after.first_report_s,
            steps_lost=None if verdict == "began anew" else max(0, stopped_at - after.resumed_steps),
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
    exact = sorted({f"{group}.{name}" for _, group, name in expected} - set(names))
    rest = f". Exact: {', '.join(exact)}" if exact else ""
    return f"differs from step {first} on: {'; '.join(shown)}{rest}"


def _unusable(facts: AttemptFacts, training: CheckedTraining) -> str | None:
    """Returns the reason why the undisturbed training cannot be a reference, or None."""
    if facts.status not in (0, PAUSED):
        return f"undisturbed, the training {_failed(facts, training)}"
    if not facts.reports:
        return "the training has reported nothing: call report_training_metrics(), or log by one of the integrations"
    return None


def _failed(facts: AttemptFacts, training: CheckedTraining) -> str:
    what = "was killed, since it took too long" if facts.status is None else f"has ended with status {facts.status}"
    return "\n    ".join([f"{what}. Its last lines:", *training.last_lines()])


def _not_deterministic(first: Reports, second: Reports) -> str:
    differences = find_differences(first, second)
    return (
        f"two undisturbed trainings differ from step {differences[0].step} on: {differences[0]}. Make the script "
        "deterministic first: seed all generators (loop.seed_all(seed)), call "
        "torch.use_deterministic_algorithms(True), or give --tolerance"
    )
