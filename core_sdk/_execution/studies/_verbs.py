"""Holds the verbs of a study and its tries; the command line, the client and the tools of agents call this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core_sdk._execution.steering import trials
from core_sdk._execution.studies._archived import diff_of
from core_sdk._execution.studies._restoring import move_branch, restore
from core_sdk._ground.records import SearcherMetric, StudyRecord, check_name
from core_sdk._home import Home
from core_sdk._home.finding.noise import MeanDifference
from core_sdk._home.finding.studies import FoundStudy, FoundTry, code_of, find_try
from core_sdk._home.finding.tries import Tries, Try
from core_sdk.errors import CodeDirectoryError, StudyNotFoundError


@dataclass(frozen=True)
class DecidedTry:
    """The decision about a try."""

    try_id: int
    warning: str
    """Why that may be wrong; empty if nothing speaks against it."""
    restored: Sequence[str] | None = None
    """The names of the files that got their parent's code back; None if that was not asked for."""


def begin_study(home: Home, name: str, study: StudyRecord) -> tuple[FoundStudy, bool]:
    """Begins a study, or changes the settings of the one that has the name. Returns whether there was one.

    Raises `InvalidNameError`.
    """
    metric = SearcherMetric.named(study.best_by)
    check_name("the metric", metric.name)
    folder = home.find_or_create_experiment(check_name("the experiment's name", name))
    with folder.edit() as record:
        is_changed = record.study is not None
        record.study, record.searcher_metric = study, metric
    return FoundStudy(folder.experiment_id, name, study), is_changed


def keep(home: Home, trial_id: int, why: str, *, branch: str = "", directory: Path | None = None) -> DecidedTry:
    """Keeps a try, so that the next ones vary it. `branch` of the repository at `directory` moves on to its code.

    Raises `TrialNotFoundError`, `StudyNotFoundError`, `CodeDirectoryError`, or `TextChangedError`.
    """
    found = find_try(home, trial_id)
    if branch:
        move_branch(directory or Path.cwd(), branch, found.code.commit)
    return _decide(home, found, "keep", why)


def discard(home: Home, trial_id: int, why: str, *, restore_in: Path | None = None) -> DecidedTry:
    """Discards a try. The directory `restore_in` gets the code of its parent back.

    Raises the errors of `keep`. The code of a directory that belongs to no try is not replaced.
    """
    found = find_try(home, trial_id)
    restored = None
    if restore_in is not None:
        if (parent := found.tries.parent_of(found.one)) is None:
            raise CodeDirectoryError(restore_in, f"gets no code back: try {found.one.try_id} has no parent")
        kept = {each.row.code.sha256 for each in found.tries.by_id.values() if each.row.code is not None}
        restored = restore(home, restore_in, code_of(parent), kept)
    return replace(_decide(home, found, "discard", why), restored=restored)


def code_difference(home: Home, found: FoundTry, other_id: int | None = None) -> tuple[Try, list[str]] | None:
    """Returns the try with which one is compared, by default its parent, and the lines of the difference.

    Returns None for a try without a parent. Raises `StudyNotFoundError` or `CodeDamagedError`.
    """
    if other_id is None:
        other = found.tries.parent_of(found.one)
    else:
        try:
            other = found.tries.of_trial(other_id)
        except StopIteration:
            raise StudyNotFoundError.of_trial(other_id) from None
    if other is None:
        return None
    changed = diff_of(home, code_of(other), found.code)
    return other, [line for each in changed.values() for line in each]


def _decide(home: Home, found: FoundTry, verdict: str, why: str) -> DecidedTry:
    trials.describe(home, found.one.try_id, verdict=verdict, verdict_reason=why)
    difference = found.tries.to_parent(found.one)
    told = "" if difference is None else _doubt(verdict, difference, found.tries)
    return DecidedTry(found.one.try_id, told and f"try {found.one.try_id}: {told}")


def _doubt(verdict: str, difference: MeanDifference, tries: Tries) -> str:
    """Returns what speaks against a verdict; empty if nothing does."""
    is_better = difference.is_better(smaller_is_better=tries.metric.smaller_is_better)
    if verdict == "discard":
        return "better than its parent, beyond noise" if difference.mark == "beyond noise" and is_better else ""
    if difference.mark in ("within noise", "one seed"):
        return f"{difference.mark}: `core-sdk try --again` with the same code gives it more seeds"
    return "" if is_better else "worse than its parent"
