"""The evidence of a trial: what it says, and that it never says more than 4 KB."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from home.journals import new_trial, record, report, vary

from core_sdk._analysis.evidence import MOST_BYTES, Evidence, keep_sources, read_evidence
from core_sdk._execution.steering import trials
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.finding.facts import read_facts
from core_sdk._home.finding.tree import trial_tree
from core_sdk.errors import TrialNotFoundError

HOSTILE = "x" * 100_000


def new_variation(home: Home, parent: int | None, hypothesis: str = "", **hparams: Any) -> TrialFolder:
    folder = new_trial(home, **hparams)
    vary(folder, parent, hypothesis)
    return folder


def evidence_of(home: Home, trial_id: int, metric: SearcherMetric | None = None) -> Evidence:
    with open_view(home) as view:
        return read_evidence(home, view, trial_id, metric)


def test_the_curve_has_its_true_extremes_with_their_steps(home: Home) -> None:
    """Of 20,000 points 30 are shown; the smallest and the largest value are exact, and so are their steps."""
    values = [math.sin(step / 1000) for step in range(20_000)]
    values[7_123], values[12_345] = -5.0, 9.0
    record(new_variation(home, None), *(report(step, loss=value) for step, value in enumerate(values)))

    curve = evidence_of(home, 1).curve

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

    found = evidence_of(home, 2, SearcherMetric(name="accuracy", smaller_is_better=False))

    assert found.changed_hparams == {"lr": (0.1, 0.3), "old": (True, None)}
    assert found.changed_lines is not None
    assert {"-lr = 0.1", "+lr = 0.3", "+warm_up = 10"} <= set(found.changed_lines)
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


def test_the_sources_of_a_large_directory_are_not_kept(home: Home, tmp_path: Path) -> None:
    """Sources beyond 2 MiB are not kept, and the reason is told; the evidence then says nothing of them."""
    for number in range(12):
        (tmp_path / f"module_{number}.py").write_text("x = 1\n" * 40_000)

    told = keep_sources(new_variation(home, None), tmp_path)

    assert "more than 2 MiB" in told
    assert evidence_of(home, 1).changed_lines is None


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
