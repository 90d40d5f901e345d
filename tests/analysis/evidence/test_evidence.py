"""The evidence of a trial: what it says, and that it never says more than 4 KB."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from home.journals import START, append, lines, new_trial, record, report, started, vary

from core_sdk._analysis.evidence import MOST_BYTES, Evidence, keep_sources, read_evidence, tree_lines
from core_sdk._execution.steering import trials
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Ended
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.finding.facts import read_facts
from core_sdk._home.finding.tree import trial_tree
from core_sdk.errors import NotRecordedError, TrialNotFoundError

HOSTILE = "x" * 100_000


def new_variation(home: Home, parent: int | None, hypothesis: str = "", **hparams: Any) -> TrialFolder:
    folder = new_trial(home, **hparams)
    vary(folder, parent, hypothesis)
    return folder


def evidence_of(
    home: Home, trial_id: int, metric: str | None = None, *, smaller_is_better: bool | None = None
) -> Evidence:
    with open_view(home) as view:
        return read_evidence(home, view, trial_id, metric, smaller_is_better)


def test_the_curve_has_its_true_extremes_with_their_steps(home: Home) -> None:
    """Of 20,000 points 30 are shown; the smallest and the largest value are exact, and so are their steps."""
    values = [math.sin(step / 1000) for step in range(20_000)]
    values[7_123], values[12_345] = -5.0, 9.0
    record(new_variation(home, None), *(report(step, loss=value) for step, value in enumerate(values)))

    curve = evidence_of(home, 1, "loss").curve

    assert curve is not None
    assert len(curve.points) <= 30
    assert (12_345, 9.0) in curve.points
    assert [curve.best, curve.last] == [(7_123, -5.0), (19_999, values[-1])]


def test_a_variation_is_compared_with_its_parent(home: Home, tmp_path: Path) -> None:
    """Hyperparameters and lines of sources that differ are shown with both values, and the parent's best one."""
    first = new_variation(home, None, lr=0.1, layers=2, old=True)
    (tmp_path / "train.py").write_text("lr = 0.1\nlayers = 2\n")
    keep_sources(first, tmp_path)
    record(first, report(1, "validation", accuracy=0.8))
    second = new_variation(home, 1, "faster", lr=0.3, layers=2)
    (tmp_path / "train.py").write_text("lr = 0.3\nlayers = 2\n")
    (tmp_path / "schedule.py").write_text("warm_up = 10\n")
    keep_sources(second, tmp_path)
    record(second, report(1, "validation", accuracy=0.9))

    found = evidence_of(home, 2, "accuracy", smaller_is_better=False)

    assert found.changed_hparams == {"lr": (0.1, 0.3), "old": (True, None)}
    assert found.changed_lines is not None
    assert {name: lines[2:] for name, lines in found.changed_lines.items()} == {
        "train.py": ["-lr = 0.1", "+lr = 0.3"],
        "schedule.py": ["+warm_up = 10"],
    }
    assert found.curve is not None
    assert (found.curve.best, found.curve.parent_best) == ((1, 0.9), 0.8)
    assert "code: +2 -1 lines" in found.text()


def test_no_evidence_is_longer_than_4_kb(home: Home, tmp_path: Path) -> None:
    """Long names, notes, reasons, differences and outputs are cut, and what is left out is counted."""
    hparams: dict[str, Any] = {f"{HOSTILE[:200]}{number}": number for number in range(300)}
    new_variation(home, None, **hparams)
    (tmp_path / "train.py").write_text("old\n" * 3000)
    keep_sources(home.trial(1), tmp_path)
    folder = new_variation(home, 1, HOSTILE, **dict.fromkeys(hparams, 7.5))
    (tmp_path / "train.py").write_text("".join(f"{HOSTILE[:1000]}{number}\n" for number in range(100)))
    keep_sources(folder, tmp_path)
    named: dict[str, Any] = {HOSTILE[:500]: 0.3}
    record(folder, *(report(step, **named) for step in range(1000)))
    folder.log_path(1).write_text("".join(f"{HOSTILE[:300]} {number}\n" for number in range(1000)))
    trials.describe(home, 2, notes="ü" * 100_000, verdict="discard", verdict_reason=HOSTILE)

    text = evidence_of(home, 2).text()

    assert len(text.encode()) <= MOST_BYTES
    assert "lines left out" in text
    assert "verdict: discard" in text


def changed(home: Home, trial_id: int) -> dict[str, list[str]]:
    return dict(evidence_of(home, trial_id).changed_lines or {})


def test_a_change_is_seen_in_a_directory_of_any_size(home: Home, tmp_path: Path) -> None:
    """Of more than 2 MiB the code is kept first; what is too large is known by its digest."""
    rows = "x = 1\n" * 40_000
    for number in range(12):
        (tmp_path / f"table_{number:02}.txt").write_text(rows)
    (tmp_path / "huge.json").write_text(rows * 2)
    for parent, value in ((None, 1), (1, 2)):
        (tmp_path / "train.py").write_text(f"VALUE = {value}\n")
        (tmp_path / "table_11.txt").write_text(f"{rows[:-6]}x = {value}\n")
        (tmp_path / "huge.json").write_text(f"{rows * 2}{value}")
        assert keep_sources(new_variation(home, parent), tmp_path) == ""

    found = changed(home, 2)

    assert list(found) == ["train.py", "huge.json", "table_11.txt"]
    assert found["train.py"][-2:] == ["-VALUE = 1", "+VALUE = 2"]
    assert all("too large to be kept: " in lines[-1] for lines in list(found.values())[1:])
    assert home.trial(2).sources_path.stat().st_mode & 0o777 == 0o600


def test_what_a_directory_says_to_ignore_is_not_kept(home: Home, tmp_path: Path) -> None:
    """The files that `.gitignore`, `.detignore` and `.coreignore` name are left out."""
    for name in ("git", "det", "core"):
        (tmp_path / f".{name}ignore").write_text(f"{name}.txt\n")
        (tmp_path / f"{name}.txt").write_text("ignored")
    keep_sources(new_variation(home, None), tmp_path)
    (tmp_path / "train.py").write_text("new\n")
    keep_sources(new_variation(home, 1), tmp_path)
    for name in ("git", "det", "core"):
        (tmp_path / f".{name}ignore").unlink()
    keep_sources(new_variation(home, 1), tmp_path)

    assert list(changed(home, 2)) == ["train.py"]
    assert list(changed(home, 3)) == ["train.py", "core.txt", "det.txt", "git.txt"]


def test_a_directory_that_may_be_a_whole_disk_is_not_searched(home: Home, tmp_path: Path) -> None:
    """Of more than 20,000 files none is copied, and the reason is told."""
    for number in range(20_001):
        (tmp_path / f"{number}.txt").touch()

    told = keep_sources(new_variation(home, None), tmp_path)

    assert "holds more than 20,000 files. Name in .coreignore" in told


def test_a_new_file_does_not_crowd_out_what_was_changed(home: Home, tmp_path: Path) -> None:
    """Files of both trials come first, and each file has its share; further ones are named."""
    (tmp_path / "train.py").write_text("rate = 1\n")
    (tmp_path / "model.py").write_text("width = 1\n")
    keep_sources(new_variation(home, None), tmp_path)
    (tmp_path / "train.py").write_text("rate = 2\n")
    (tmp_path / "model.py").write_text("".join(f"width = {number}\n" for number in range(2000)))
    for number in range(5):
        (tmp_path / f"a_note_{number}.txt").write_text("all that I think\n" * 2000)
    keep_sources(new_variation(home, 1), tmp_path)

    text = evidence_of(home, 2).text()

    assert "code: +12000 -1 lines" in text
    assert {"-rate = 1", "+rate = 2", "+width = 0", "+all that I think"} <= set(text.splitlines())
    assert "further files: a_note_2.txt, a_note_3.txt, a_note_4.txt" in text


def test_evidence_says_whose_sources_are_not_known(home: Home, tmp_path: Path) -> None:
    """A variation of a trial that was started without a hypothesis says why no code is compared."""
    new_trial(home)
    (tmp_path / "train.py").write_text("rate = 2\n")
    keep_sources(new_variation(home, 1), tmp_path)

    assert "code: not compared: no sources of trial 1 were kept" in evidence_of(home, 2).text()


def test_variations_stand_below_what_they_vary(home: Home) -> None:
    """The tree has each parent before its variations; a deleted trial's are at the top."""
    for parent in (None, 1, 2, 1, None, 3):
        new_variation(home, parent, "why" if parent else "")
    trials.delete(home, 3)

    with open_view(home) as view:
        branches = trial_tree(read_facts(view, view.trials()))
        below = trial_tree(read_facts(view, view.trials()), 2)

    assert [(one.trial.row.trial_id, one.depth) for one in branches] == [(1, 0), (2, 1), (4, 1), (6, 0)]
    assert [one.trial.row.trial_id for one in below] == [2]


def test_a_trial_without_reports_or_parent_has_evidence(home: Home) -> None:
    """A trial of which little is known is described by that; an unknown one is an error."""
    new_variation(home, 77)

    assert "no metric was reported" in evidence_of(home, 1).text()
    with pytest.raises(TrialNotFoundError):
        evidence_of(home, 2)


def test_a_metric_without_a_finite_value_is_no_silence(home: Home) -> None:
    """The evidence names the metric, and says that none of its values is a number."""
    record(new_variation(home, None), *(report(step, loss="NaN") for step in range(1, 30)))

    assert "training.loss: none of its 29 values is a finite number, last 29:NaN" in evidence_of(home, 1).text()
    assert "training.loss: none" in evidence_of(home, 1, "loss").text()


def test_a_curve_has_no_point_that_was_not_reported(home: Home) -> None:
    """Where values are not finite, a point is the value of its step; how many there are is told."""
    values: list[float | str] = [1 / step if step < 20 else "NaN" for step in range(1, 101)]
    values[9] = "-Infinity"
    record(new_variation(home, None), *(report(step, loss=value) for step, value in enumerate(values, start=1)))

    found = evidence_of(home, 1, "loss")

    assert found.curve is not None
    assert [found.curve.best, found.curve.last[0]] == [(19, 1 / 19), 100]
    assert all(math.isnan(value) for step, value in found.curve.points if step > 19)
    assert "last 100:NaN, 82 of 100 values not finite" in found.text()


def test_evidence_names_a_metric_as_it_takes_it(home: Home) -> None:
    """A metric is named with its group or without it; one that no trial has is an error that names those there are."""
    record(new_variation(home, None), report(1, loss=0.5), report(1, "validation", accuracy=0.7))

    for name in ("accuracy", "validation.accuracy"):
        curve = evidence_of(home, 1, name, smaller_is_better=False).curve
        assert curve is not None
        assert curve.metric == "validation.accuracy"
    with pytest.raises(NotRecordedError, match=r"losss.*training\.loss, validation\.accuracy"):
        evidence_of(home, 1, "losss")


def test_nobody_says_which_is_best_of_a_metric_that_nobody_has_chosen(home: Home) -> None:
    """Beside a loss that is NaN the accuracy is shown, with both of its ends and without a direction."""
    reports = (report(step, "validation", loss="NaN", accuracy=step / 10) for step in (1, 2))
    record(new_variation(home, None), *reports)

    text = evidence_of(home, 1).text()

    assert "validation.accuracy: smallest 1:0.1, largest 2:0.2, last 2:0.2" in text
    assert "better" not in text


def test_a_metric_that_was_recorded_with_the_trial_decides(home: Home) -> None:
    """What `init()` or `core-sdk run` has recorded is used when nothing else is given, also where it is missing."""
    for accuracies in ((0.7, 0.5), ()):
        folder = new_variation(home, None, "why")
        trial = folder.read_record()
        trial.best_by = "max.accuracy"
        folder.write_record(trial)
        validations = (report(step, "validation", accuracy=one) for step, one in enumerate(accuracies, start=1))
        record(folder, report(1, loss=0.5), *validations)

    with open_view(home) as view:
        branches = trial_tree(read_facts(view, view.trials()))

    assert "validation.accuracy (larger is better): best 1:0.7, last 2:0.5" in evidence_of(home, 1).text()
    assert "accuracy was not reported; there are: training.loss" in evidence_of(home, 2).text()
    assert next(tree_lines(home, branches)) == "1  ERROR  max.accuracy 0.7  why"
    assert "min.accuracy 0.5" in next(tree_lines(home, branches, "accuracy", True))


def test_a_trial_that_goes_on_is_compared_with_the_same_step_of_its_parent(home: Home) -> None:
    """While it runs, the best that its parent had reached by then counts; after its end, the parent's best of all."""
    record(new_variation(home, None), *(report(step, loss=1 / step) for step in range(1, 101)))
    folder = new_variation(home, 1)
    folder.journal_path(1).write_bytes(lines(started(folder), *(report(step, loss=2 / step) for step in range(1, 11))))

    alive = AliveLock(folder.alive_path(1))
    while_it_runs = evidence_of(home, 2, "loss")
    alive.release()
    append(folder, 1, lines(Ended(time=START + 2000, outcome="completed")))
    after_its_end = evidence_of(home, 2, "loss")

    assert "the parent's 0.1 up to that step" in while_it_runs.text()
    assert "the parent's 0.01, last" in after_its_end.text()
