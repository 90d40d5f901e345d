"""Runs the undisturbed and the disturbed trainings."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core_sdk._analysis.resume_check._command import CheckedCommand
from core_sdk._analysis.resume_check._comparing import Reports, metric_names, unsteady_metrics
from core_sdk._analysis.resume_check._diagnosis._diagnosing import first_unsteady_parts, unsteady_parts
from core_sdk._analysis.resume_check._diagnosis._explaining import explained
from core_sdk._analysis.resume_check._hints import hint_of
from core_sdk._analysis.resume_check._judging import differs_by_rounding, judge, not_deterministic, with_tensors
from core_sdk._analysis.resume_check._moments import MOMENTS, Moment, check_moments, choose_moments
from core_sdk._analysis.resume_check._recorded import RecordedTraining
from core_sdk._analysis.resume_check._report import MomentResult, ResumeReport
from core_sdk._analysis.resume_check._training import AttemptFacts, CheckedTraining
from core_sdk._analysis.resume_check._watched import WatchedTraining
from core_sdk._analysis.resume_check._written_files import changed, files_below
from core_sdk._ground.records import Report
from core_sdk.core._preempt._disturbance import Disturbance, How
from core_sdk.core._recorders._fingerprints import Fingerprint

_NUM_REPORTS = 200
_SHARE = 1 / 4
"""The share of the budget after which the undisturbed training is stopped: two moments are then tried at least."""
_MAX_NAMED = 5


@dataclass(frozen=True)
class _Reference:
    """The undisturbed training, with which the others are compared."""

    reports: Sequence[Report]
    expected: Reports
    end: Disturbance | None
    """The disturbance that ends the other trainings at the same report; None if this one came to its own end."""
    ignores_stops: bool
    num_saves: int | None
    """None if the script may have files of its own."""
    took_s: float
    checkpoint_step: int
    """The step of the last checkpoint."""
    tensors: dict[str, str]
    """Digests of its tensors, as far as both undisturbed trainings have the same."""
    fingerprints: tuple[Fingerprint, ...]
    unsteady_parts: frozenset[str] = frozenset()

    @property
    def timeout_s(self) -> float:
        return 3 * self.took_s + 60


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
        num_random: int = 0,
        tolerance: float = 0.0,
        seed: int = 1,
        resume_with: Sequence[str] = (),
        metrics_from: str = "",
        ranks: Sequence[int] = (),
        keep_in: Path | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`num_steps`, by default 200 reports, ends the undisturbed training if it does not end before.

        `budget_s` is the time for everything: the undisturbed training ends after a quarter of it, and moments for
        which too little is left are not tried. `moments` are names of `MOMENTS`, or numbers of steps, where `how` says
        what happens; without them, and without `num_random` moments that `seed` chooses, they are all. `tolerance` is
        the share by which values may differ. `resume_with`, `metrics_from` and `ranks` are those of `CheckedCommand`.
        `keep_in` is a directory for the homes and the output of all trainings, which are removed otherwise. Raises
        `ValueError` for an unknown moment, or a command that cannot be checked so.
        """
        chosen = moments if moments is not None else () if num_random else MOMENTS
        self._command = CheckedCommand(list(command), resume_with, metrics_from, ranks)
        self._num_steps = num_steps
        self._budget_s = budget_s
        self._moments = check_moments(chosen)
        self._how: How = how
        self._num_random = num_random
        self._tolerance = tolerance
        self._seed = seed
        self._keep_in = keep_in
        self._tell = tell
        self.report = ResumeReport(list(command))

    def run(self) -> ResumeReport:
        """Checks, and returns the report. Blocks for (2 + number of moments) times the undisturbed training."""
        root = Path(tempfile.mkdtemp(prefix="core-sdk-check-resume-")) if self._keep_in is None else self._keep_in
        root.mkdir(parents=True, exist_ok=True)
        try:
            self._check(root.resolve())
        finally:
            if self._keep_in is None:
                shutil.rmtree(root, ignore_errors=True)
        return self.report

    def _check(self, root: Path) -> None:
        began_at = time.monotonic()
        reference = self._take_reference(root)
        if reference is None:
            return
        if reference.num_saves == 0 and "kill" in self._moments:
            self.report.not_tried.append("kill: not tried, since the undisturbed training has saved nothing")
        for moment in choose_moments(
            reference.reports,
            reference.num_saves,
            self._moments,
            self._how,
            num_random=self._num_random,
            seed=self._seed,
        ):
            if self.report.moments and time.monotonic() - began_at + reference.took_s > self._budget_s:
                self._leave_out(moment, "the budget is used up")
            elif reference.ignores_stops and moment.disturbances[0].how == "stop":
                words = f"did not stop: asked at step {self.report.last_step} of the undisturbed training, it went on"
                self._add(MomentResult(moment.name, moment.words, "did not stop", words))
            else:
                self._disturb(root / moment.name, moment, reference)
        if not self.report.moments:
            why = "".join(f"\n    {each}" for each in self.report.not_tried)
            self.report.problem = f"there is no moment to disturb it at: it has reported too few steps{why}"

    def _take_reference(self, root: Path) -> _Reference | None:
        """Trains undisturbed, twice. Returns None if the training cannot be judged, for the reason in the report."""
        began_at = time.monotonic()
        here = files_below(Path.cwd(), without=root)
        training = self._training(root / "undisturbed-1")
        how: How = "kill" if self._command.metrics_from else "stop"
        by_number = Disturbance(how, number=_NUM_REPORTS)
        planned_end = by_number if self._num_steps is None else Disturbance(how, self._num_steps)
        facts = training.run_attempt(planned_end, self._budget_s * _SHARE)
        if (problem := self._unusable(facts, training)) is not None:
            self.report.problem = problem
            return None
        reference = _reference(facts, planned_end, training.reports(), time.monotonic() - began_at)
        if self._command.has_own_checkpoints:
            reference = replace(reference, num_saves=None)
        last_step = reference.reports[-1].steps_completed
        self.report.num_reports, self.report.last_step = len(reference.reports), last_step
        until = "to its end" if reference.end is None else f"up to step {last_step}"
        self._tell(f"undisturbed {until}: {len(reference.reports)} reports in {reference.took_s:.0f} s")
        self._tell_of_shared(changed(here, files_below(Path.cwd(), without=root)))

        second = self._training(root / "undisturbed-2")
        again = second.run_attempt(reference.end, reference.timeout_s)
        first_parts = first_unsteady_parts(facts.fingerprints, again.fingerprints)
        unsteady = unsteady_parts(facts.fingerprints, again.fingerprints)
        if not self._has_steady_metrics(reference.expected, second.reports(), unsteady):
            self.report.problem += f". What is the first to differ: {', '.join(first_parts)}" if first_parts else ""
            return None
        step, tensors = training.last_tensors()
        _, of_second = second.last_tensors(step)
        return replace(
            reference,
            checkpoint_step=step,
            tensors={name: digest for name, digest in tensors.items() if of_second.get(name) == digest},
            unsteady_parts=unsteady,
        )

    def _training(self, directory: Path) -> CheckedTraining:
        if self._command.metrics_from:
            return WatchedTraining(self._command, directory)
        return RecordedTraining(self._command, directory, seed=self._seed)

    def _has_steady_metrics(self, expected: Reports, second: Reports, unsteady_parts: frozenset[str]) -> bool:
        """Takes note of the metrics that are not compared, and returns whether others are left."""
        unsteady = unsteady_metrics(expected, second)
        if unsteady and not self._tolerance:
            self.report.not_compared = sorted(unsteady)
            # Where parameters differ, what is equal, such as a scale, proves nothing.
            if unsteady >= set(metric_names(expected)) or any(each.endswith(": parameters") for each in unsteady_parts):
                self.report.problem = not_deterministic(expected, second)
                return False
            self._tell(f"not compared, since two undisturbed trainings differ: {', '.join(sorted(unsteady))}")
        return True

    def _disturb(self, directory: Path, moment: Moment, reference: _Reference) -> None:
        result = self._result_of(self._training(directory), moment, reference)
        if result is not None and differs_by_rounding(result):
            # Threads may have summed in another order, once; what was forgotten is missing again.
            again = self._result_of(self._training(directory.with_name(f"{moment.name}-again")), moment, reference)
            if again is not None and again.is_exact:
                result = replace(again, words=f"{again.words}, at a second attempt. The first one {result.words}")
        if result is not None:
            self._add(result)

    def _result_of(self, training: CheckedTraining, moment: Moment, reference: _Reference) -> MomentResult | None:
        """Returns the result of a training that is disturbed; None, and says so, if it could not be disturbed."""
        attempts: list[AttemptFacts] = []
        for disturbance in moment.disturbances:
            attempts.append(facts := training.run_attempt(disturbance, reference.timeout_s))
            if self._has_missed(facts, reference):
                self._leave_out(moment, "the training was over before its files showed this step")
                return None
            if (result := self._why_not_resumed(facts, training, moment)) is not None:
                return result
        attempts.append(facts := training.run_attempt(reference.end, reference.timeout_s))
        if (result := self._why_failed(facts, training, moment)) is not None:
            return result
        ignored = frozenset(self.report.not_compared)
        found = training.reports()
        result = judge(moment, attempts, reference.expected, found, ignored=ignored, tolerance=self._tolerance)
        if result.is_exact and not self._tolerance:
            _, tensors = training.last_tensors(reference.checkpoint_step)
            result = with_tensors(result, reference.tensors, tensors)
        last_step = self.report.last_step if reference.end is None else None
        return explained(result, attempts, reference.fingerprints, reference.unsteady_parts, last_step=last_step)

    def _has_missed(self, facts: AttemptFacts, reference: _Reference) -> bool:
        """Returns whether a training whose files are watched was over before it could be disturbed."""
        if not self._command.metrics_from or facts.end == "ended":
            return bool(self._command.metrics_from)
        is_over = bool(facts.reports) and facts.reports[-1].steps_completed >= self.report.last_step
        return is_over and (reference.end is not None or facts.status != 0)

    def _why_not_resumed(self, facts: AttemptFacts, training: CheckedTraining, moment: Moment) -> MomentResult | None:
        """Returns the result of a moment at which the training did not end as it should; else None."""
        last_step = facts.reports[-1].steps_completed if facts.reports else 0
        is_over = facts.end == "ended" or (facts.status == 0 and last_step >= self.report.last_step)
        if is_over and not (facts.end == "stopped" and not self._command.metrics_from):
            words = f"did not stop: it went on to its end, at step {last_step}"
            return MomentResult(moment.name, moment.words, "did not stop", words, last_step)
        if facts.end == "hung" and last_step:
            words = f"did not stop: it was killed at step {last_step}, since it took too long"
            return MomentResult(moment.name, moment.words, "did not stop", words, last_step)
        return self._why_failed(facts, training, moment)

    def _why_failed(self, facts: AttemptFacts, training: CheckedTraining, moment: Moment) -> MomentResult | None:
        if facts.end not in ("failed", "hung"):
            return None
        return MomentResult(moment.name, moment.words, "failed", _failed(facts, training))

    def _unusable(self, facts: AttemptFacts, training: CheckedTraining) -> str | None:
        """Returns the reason why the undisturbed training cannot be compared with, or None."""
        if facts.end == "failed" or (facts.end == "hung" and not facts.reports):
            return f"undisturbed, the training {_failed(facts, training)}"
        if facts.reports:
            return None
        if self._command.metrics_from:
            return (
                f"no metrics were found in {self._command.metrics_from}: a file of JSON lines has objects with an "
                'integer "step" and numbers, and TensorBoard\'s files have "tfevents" in their names'
            )
        return (
            "the training has reported nothing: call report_training_metrics(), log by one of the integrations, or "
            "give --metrics-from a file that it writes"
        )

    def _tell_of_shared(self, paths: Sequence[Path]) -> None:
        self.report.shared_files = [str(each.relative_to(Path.cwd())) for each in paths]
        if paths:
            named = ", ".join(self.report.shared_files[:_MAX_NAMED])
            more = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
            self._tell(f"written in the working directory, where all further trainings find it: {named}{more}")

    def _add(self, result: MomentResult) -> None:
        self.report.moments.append(result)
        self._tell("\n".join(result.lines()))

    def _leave_out(self, moment: Moment, why: str) -> None:
        words = f"{moment.words}: not tried, since {why}"
        self.report.not_tried.append(words)
        self._tell(words)


def _reference(facts: AttemptFacts, planned_end: Disturbance, found: Reports, took_s: float) -> _Reference:
    # What comes after a stop that was heard belongs to it, such as a last validation.
    is_heard = facts.end == "stopped" and planned_end.how == "stop"
    reports = facts.reports if is_heard else _up_to(planned_end, facts.reports)
    last = reports[-1]
    end = Disturbance("stop" if is_heard else "kill", last.steps_completed, last.group)
    return _Reference(
        reports=reports,
        expected={key: value for key, value in found.items() if key[0] <= last.steps_completed},
        end=None if facts.end == "ended" else end,
        ignores_stops=facts.end == "hung" and planned_end.how == "stop",
        num_saves=facts.num_saves,
        took_s=took_s,
        checkpoint_step=0,
        tensors={},
        fingerprints=facts.fingerprints,
    )


def _failed(facts: AttemptFacts, training: CheckedTraining) -> str:
    what = "was killed, since it took too long" if facts.status is None else f"has ended with status {facts.status}"
    after = f" after step {facts.reports[-1].steps_completed}" if facts.reports else ", and has reported nothing"
    lines = training.last_lines()
    hint = f" ({hint})" if (hint := hint_of(lines)) else ""
    return "\n    ".join([f"{what}{after}{hint}. Its last lines:", *lines])


def _up_to(end: Disturbance, reports: Sequence[Report]) -> Sequence[Report]:
    """Returns the reports up to the one at which the disturbance is due, or all."""
    due = (number for number, each in enumerate(reports, 1) if end.is_due(each, number))
    return reports[: next(due, len(reports))]
