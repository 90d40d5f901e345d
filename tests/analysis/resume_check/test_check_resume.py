"""`core-sdk check-resume` tells trainings that go on exactly from those that forget something."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from core_sdk.client import Tracker
from core_sdk.testing import ResumeReport, check_resume

SCRIPT = Path(__file__).with_name("forgetful.py")


def check(forgotten: str, moments: Collection[str | int] | None = None, **options: object) -> ResumeReport:
    command = [sys.executable, str(SCRIPT), forgotten]
    return check_resume(command, moments=moments, budget_s=3600, **options)  # type: ignore[arg-type]


def test_an_exact_training_is_exact(tmp_path: Path) -> None:
    """A stop changes no number; a time is not compared; the time of the save is told."""
    report = check("nothing", ["middle"], keep_in=tmp_path / "kept")

    report.assert_exact()
    assert report.not_compared == ["training.time"]
    assert (report.num_reports, report.last_step) == (27, 24)
    (middle,) = report.moments
    assert middle.steps_lost == 0
    assert middle.save_s is not None
    assert (tmp_path / "kept" / "middle" / "home" / "runs" / "1").exists()


@pytest.mark.timeout(900)
def test_an_exact_training_is_exact_at_every_moment() -> None:
    """Two stops, SIGTERM and kill -9 change no number; the steps that are lost are told."""
    report = check("nothing")

    report.assert_exact()
    assert [each.verdict for each in report.moments] == ["exact"] * 8
    by_name = {each.name: each for each in report.moments}
    assert by_name["kill"].steps_lost == 1
    assert by_name["kill-in-save"].steps_lost == 5


@pytest.mark.parametrize(
    ("forgotten", "verdict", "words"),
    [
        ("the generator", "differs", "differs from step 14 on: training.value"),
        ("the mean", "passing", "exact but for training.mean up to step 16"),
        ("to load", "began anew", "has reported its first step again"),
        ("stops", "did not stop", "it went on to its end, at step 24"),
    ],
)
def test_what_a_training_forgets_is_told(forgotten: str, verdict: str, words: str) -> None:
    """The verdict and the first wrong value say what the training does after a stop in its middle."""
    report = check(forgotten, ["middle"])

    (moment,) = report.moments
    assert moment.verdict == verdict
    assert words in moment.words
    assert report.is_exact == (verdict == "passing")
    if not report.is_exact:
        with pytest.raises(AssertionError, match="stop after step 13: "):
            report.assert_exact()


def test_a_training_that_differs_by_rounding_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in another order, which happen once, are told, and are no fault of the resume; a forgotten number stays."""
    monkeypatch.chdir(tmp_path)

    report = check("the order of its sums once", ["middle"])

    report.assert_exact()
    assert (
        "exact, at a second attempt. The first one differs from step 14 on: training.value" in report.moments[0].words
    )


@pytest.mark.parametrize(
    ("forgotten", "problem"),
    [
        ("its seed", "two undisturbed trainings differ from step 1 on: .*Make the script deterministic first"),
        ("all reports", "has reported nothing"),
        ("how to run", "undisturbed, the training has ended with status 1.*ValueError: it cannot"),
    ],
)
def test_a_training_that_cannot_be_judged_is_told(forgotten: str, problem: str) -> None:
    """The reason stands in the report, which then is not exact."""
    report = check(forgotten, ["middle"])

    assert not report.is_exact
    with pytest.raises(AssertionError, match=f"(?s){problem}"):
        report.assert_exact()


def test_a_longer_training_is_compared_up_to_a_step() -> None:
    """The undisturbed training is stopped there, and so is the resumed one; a step is disturbed by its number."""
    report = check("nothing", [3], num_steps=7)

    report.assert_exact()
    assert report.last_step == 7
    assert [each.moment for each in report.moments] == ["stop after step 3"]


@pytest.mark.parametrize(
    ("forgotten", "cause"),
    [
        ("optimizer", "the state of the optimizer is empty (step, exp_avg, exp_avg_sq)"),
        ("model", "the parameters of the optimizer are the initial ones"),
        ("loader", "the model is called with the batch after step 0 of the undisturbed training"),
    ],
)
def test_what_a_torch_training_forgets_is_named(forgotten: str, cause: str) -> None:
    """The state before the first steps after a resume says which part was not restored."""
    report = check_resume([sys.executable, str(SCRIPT.with_name("forgetful_torch.py")), forgotten], moments=[10])

    (moment,) = report.moments
    assert moment.verdict == "differs"
    assert moment.causes[0].startswith(cause), moment.causes


def test_tensors_of_the_last_checkpoint_are_compared() -> None:
    """A tensor that no metric shows differs."""
    report = check_resume([sys.executable, str(SCRIPT.with_name("unreported.py"))], moments=[3], budget_s=3600)

    (moment,) = report.moments
    assert moment.verdict == "differs"
    assert moment.tensors == ("state.pt: hidden",)
    assert "every number is the same" in moment.words


def test_fingerprints_change_no_number(tmp_path: Path) -> None:
    """A checked training reports what the same script reports alone."""
    script = str(SCRIPT.with_name("forgetful_torch.py"))
    report = check_resume([sys.executable, script], moments=["kill"], keep_in=tmp_path)
    environment = os.environ | {"CORE_SDK_HOME": str(tmp_path / "home"), "CORE_SDK_QUIET": "1"}
    subprocess.run([sys.executable, script], env=environment, check=True)

    report.assert_exact()
    checked, alone = (
        [dict(each.metrics) for each in Tracker(home).get_trial(1).iter_metrics("training")]
        for home in (tmp_path / "undisturbed-1" / "home", tmp_path / "home")
    )
    assert checked == alone
    assert len(alone) == 20
