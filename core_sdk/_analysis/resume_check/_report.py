"""Holds the result of a check, and writes it as lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from core_sdk._analysis.resume_check._comparing import Difference

Verdict = Literal["exact", "passing", "differs", "began anew", "did not stop", "failed"]


@dataclass(frozen=True)
class CurvePoint:
    """A value of the undisturbed training, and of the disturbed one at the same step."""

    step: int
    expected: float
    found: float | None
    """None if it was not reported."""


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
    stopped_at: int = 0
    """The last step before the last resume."""
    differences: tuple[Difference, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    """The metric that differs first, around the step where it does."""
    tensors: tuple[str, ...] = ()
    """The tensors of the last checkpoint that differ, although no number does, by file and name."""
    causes: tuple[str, ...] = ()
    """The parts that the resumed training has forgotten, as far as its first steps show them."""
    save_s: float | None = None
    """The time from the stop to the end of the save that it causes, in seconds."""
    first_report_s: float | None = None
    """The time from `init()` of the resumed attempt, or the start of its process, to its first report, in seconds."""
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
    shared_files: list[str] = field(default_factory=list)
    """Files in the working directory that the first training has written, and that all others found there."""
    moments: list[MomentResult] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)
    """The moments, in words, that were left out, with the reasons."""

    @property
    def is_exact(self) -> bool:
        """Whether the training was judged, and goes on exactly at all moments that were tried."""
        return not self.problem and bool(self.moments) and all(each.is_exact for each in self.moments)

    def assert_exact(self) -> None:
        """Raises `AssertionError`, which lists what was found, unless the training goes on exactly."""
        if not self.is_exact:
            raise AssertionError("\n".join([self.problem or "the training does not go on exactly:", *self.lines()]))

    def lines(self) -> list[str]:
        """Returns the result of each moment as a line, with its causes below it."""
        return [line for each in self.moments for line in each.lines()]
