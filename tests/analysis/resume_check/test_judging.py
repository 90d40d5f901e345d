"""How a disturbed training is judged, by its reports."""

from __future__ import annotations

import re

import pytest

from core_sdk._analysis.resume_check import ResumeReport, parting_charts
from core_sdk._analysis.resume_check._hints import hint_of
from core_sdk._analysis.resume_check._judging import judge
from core_sdk._analysis.resume_check._moments import Moment
from core_sdk._analysis.resume_check._training import AttemptFacts
from core_sdk._ground.records import Report
from core_sdk.core._preempt._disturbance import Disturbance, How

EXPECTED = {(step, "training", "loss"): 1 / step for step in range(1, 11)}


def attempt(first: int, last: int, *, resumed: int | None = 0, num_saves: int = 0) -> AttemptFacts:
    reports = tuple(Report(0.0, "training", step, {"loss": 1 / step}) for step in range(first, last + 1))
    return AttemptFacts("stopped", 0, reports, resumed_steps=resumed, num_saves=num_saves)


@pytest.mark.parametrize(
    ("how", "before", "after", "verdict", "words"),
    [
        ("stop", attempt(1, 5, num_saves=1), attempt(6, 10, resumed=5), "exact", "exact"),
        (
            "kill",
            attempt(1, 5, num_saves=1),
            attempt(4, 10, resumed=3),
            "exact",
            "exact. It went on from step 3, and trained 2 steps twice",
        ),
        ("kill", attempt(1, 5), attempt(4, 10, resumed=None), "exact", "exact. It went on from step 3, and"),
        ("kill", attempt(1, 5), attempt(1, 10), "exact", "exact. It went on from step 0, and trained 5 steps twice"),
        ("stop", attempt(1, 5), attempt(1, 10), "began anew", "began anew: .*, and nothing was saved before"),
        (
            "stop",
            attempt(1, 5, num_saves=1),
            attempt(1, 10, resumed=5),
            "began anew",
            ".* reported its first step again$",
        ),
        (
            "kill",
            attempt(1, 5),
            attempt(1, 10, resumed=None),
            "began anew",
            ".*perhaps since it had saved nothing yet$",
        ),
    ],
)
def test_words_say_from_where_a_training_went_on(
    how: How, before: AttemptFacts, after: AttemptFacts, verdict: str, words: str
) -> None:
    """The step is that of the checkpoint, or the one before the first report of a script with files of its own."""
    result = judge(Moment("step-5", "after step 5", (Disturbance(how, 5),)), [before, after], EXPECTED, EXPECTED)

    assert result.verdict == verdict
    assert re.match(words, result.words)


def test_the_curves_are_drawn_where_they_part() -> None:
    """Both stand in a chart from some steps before the first difference, with the last step before the resume."""
    expected = {(step, "training", "loss"): 1 / step for step in range(1, 101)}
    found = {key: value + (key[0] > 50) for key, value in expected.items() if key[0] != 60}
    moment = Moment("step-50", "stop after step 50", (Disturbance("stop", 50),))

    result = judge(moment, [attempt(1, 50, num_saves=1), attempt(51, 100, resumed=50)], expected, found)
    (chart,) = parting_charts(ResumeReport(["train"], moments=[result]))

    assert chart.title == "training.loss: stop after step 50"
    assert [(curve.label, len(curve.buckets)) for curve in chart.curves] == [("disturbed", 59), ("undisturbed", 60)]
    assert chart.step_range == (31.0, 90.0)
    assert chart.marks == [50]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["EOFError: EOF when reading a line"], "it has read from stdin"),
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"], "the memory of the GPU is full"),
        (["ValueError: 3"], ""),
    ],
)
def test_last_lines_have_a_meaning(lines: list[str], words: str) -> None:
    """What a training lacks on this machine is said in words."""
    assert hint_of(lines).startswith(words)
    assert bool(hint_of(lines)) == bool(words)
