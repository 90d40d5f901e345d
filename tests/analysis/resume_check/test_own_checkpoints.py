"""`core-sdk check-resume` of scripts without a Context, which go on by flags and files of their own."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from core_sdk.testing import ResumeReport, check_resume

SCRIPT = Path(__file__).with_name("own_checkpoints.py")


def check(*arguments: str, moments: Collection[str | int] = (12,), **options: Any) -> ResumeReport:
    command = [sys.executable, str(SCRIPT), "--out", "{dir}", *arguments]
    options = {"metrics_from": "{dir}/log.jsonl", "resume_with": ["--resume", "auto"], **options}
    return check_resume(command, moments=moments, **options)


def test_a_script_with_checkpoints_of_its_own_goes_on_exactly() -> None:
    """A SIGTERM and kill -9 change no number of its file, and the steps since its last save are trained twice."""
    report = check(moments=["middle", "kill"])

    report.assert_exact()
    assert (report.num_reports, report.last_step) == (30, 30)
    assert [each.verdict for each in report.moments] == ["exact", "exact"]
    assert all(each.steps_lost is not None and 0 <= each.steps_lost <= 5 for each in report.moments)


@pytest.mark.parametrize(
    ("forgotten", "verdict", "words"),
    [
        ("the generator", "differs", "loss "),
        ("to load", "began anew", "perhaps since it had saved nothing yet"),
        ("to stop", "did not stop", "it went on to its end, at step 30"),
    ],
)
def test_what_such_a_script_forgets_is_told(forgotten: str, verdict: str, words: str) -> None:
    """The file shows it as reports do, with the values around the first one that differs."""
    report = check("--forget", forgotten)

    (moment,) = report.moments
    assert moment.verdict == verdict
    assert words in moment.words
    if verdict == "differs":
        first = moment.differences[0].step
        assert [each.step for each in moment.curve if each.expected != each.found] == list(range(first, 31))


def test_metrics_come_from_event_files() -> None:
    """Each attempt writes a file of its own into the directory."""
    report = check("--events", metrics_from="{dir}")

    report.assert_exact()
    assert report.num_reports == 30


def test_a_training_goes_on_with_another_number_of_ranks() -> None:
    """The command has the first number until it is disturbed, and then the second one."""
    report = check("--ranks", "{ranks}", ranks=[2, 1])

    assert "ranks 1 instead of 2" in report.moments[0].words
    assert "Exact: loss" in report.moments[0].words


def test_a_command_without_a_place_of_its_own_is_refused() -> None:
    """All trainings would write into one file, or would have one number of ranks."""
    with pytest.raises(ValueError, match="all trainings would write into log"):
        check(metrics_from="log.jsonl")
    with pytest.raises(ValueError, match=r"must have \{ranks\} where the number of ranks belongs"):
        check(ranks=[2, 1])


@pytest.mark.parametrize(
    ("arguments", "metrics_from", "problem"),
    [
        (["--forget", "that nobody answers"], "{dir}/log.jsonl", "status 1.*it has read from stdin.*EOFError"),
        ([], "{dir}/other.jsonl", "no metrics were found in {dir}/other.jsonl"),
    ],
)
def test_a_script_that_cannot_be_judged_is_told(arguments: list[str], metrics_from: str, problem: str) -> None:
    """The reason says what to change."""
    report = check(*arguments, metrics_from=metrics_from)

    with pytest.raises(AssertionError, match=f"(?s){problem}"):
        report.assert_exact()


def test_a_script_that_runs_for_hours_ends_with_its_budget() -> None:
    """It is compared as far as it came in a quarter of the time, and moments that do not fit are named."""
    report = check("--steps", "1000000", moments=["middle", "kill", "sigterm"], budget_s=32)

    report.assert_exact()
    assert 1 <= len(report.moments) < 3
    assert report.not_tried[-1].startswith("SIGTERM after step ")
    assert report.not_tried[-1].endswith("not tried, since the budget is used up")


def test_files_that_all_trainings_share_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the working directory, which the first training has written, is there for all others."""
    monkeypatch.chdir(tmp_path)
    program = "open('best.txt', 'w').write('1'); print('{\"step\": 1, \"loss\": 1}', file=open('{dir}/log', 'w'))"
    report = check_resume([sys.executable, "-c", program], metrics_from="{dir}/log")

    assert report.shared_files == ["best.txt"]
    assert "it has reported too few steps" in report.problem
