"""Finds studies, by their names or their directories, and the tries of trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._ground.records import CodeRecord, SearcherMetric, StudyRecord
from core_sdk._home import Home, open_view
from core_sdk._home.finding.tries import Tries, Try, read_tries, study_here, study_of
from core_sdk.errors import StudyNotFoundError


@dataclass(frozen=True)
class FoundStudy:
    """A study of a home."""

    experiment_id: int
    name: str
    record: StudyRecord

    def read(self, home: Home) -> Tries:
        with open_view(home) as view:
            return read_tries(view, self.experiment_id, SearcherMetric.named(self.record.best_by))


@dataclass(frozen=True)
class FoundTry:
    """A try, with all others of its study."""

    study: FoundStudy
    tries: Tries
    one: Try

    @property
    def code(self) -> CodeRecord:
        """The code of the try. Raises `StudyNotFoundError` if it is not known."""
        return code_of(self.one)


def find_study(home: Home, name: str, directory: Path) -> FoundStudy:
    """Finds the study of this name, or without a name that of a directory. Raises `StudyNotFoundError`."""
    if name:
        folder = home.find_experiment(name)
        study = None if folder is None else folder.read().study
        if folder is None or study is None:
            raise StudyNotFoundError.named(name, home.root)
        return FoundStudy(folder.experiment_id, name, study)
    experiment_id = study_here(home, str(directory.resolve()))
    record = None if experiment_id is None else home.experiment(experiment_id).read()
    if experiment_id is None or record is None or record.study is None:
        raise StudyNotFoundError.here(directory)
    return FoundStudy(experiment_id, record.name, record.study)


def find_try(home: Home, trial_id: int) -> FoundTry:
    """Finds the try of a trial, with all of its study. Raises `TrialNotFoundError` or `StudyNotFoundError`."""
    record = home.trial(trial_id).read_record()
    if record.try_id is None:
        raise StudyNotFoundError.of_trial(trial_id)
    experiment_id, study = study_of(home, trial_id)
    found = FoundStudy(experiment_id, home.experiment(experiment_id).read().name, study)
    tries = found.read(home)
    return FoundTry(found, tries, tries.of_trial(trial_id))


def code_of(one: Try) -> CodeRecord:
    """Returns the code of a try. Raises `StudyNotFoundError` if it is not known."""
    if one.row.code is None:
        raise StudyNotFoundError(f"the code of try {one.try_id} is not known")
    return one.row.code


def tries_to_await(tries: Tries, ids: Sequence[int]) -> dict[int, list[int]]:
    """Returns the trials of the named tries, or without names of all that have not ended.

    Raises `StudyNotFoundError` for a trial that belongs to no try of the study.
    """
    try:
        wanted = [tries.of_trial(each) for each in ids]
    except StopIteration:
        unknown = next(each for each in ids if not any(one.has_trial(each) for one in tries.by_id.values()))
        raise StudyNotFoundError.of_trial(unknown) from None
    chosen = wanted if ids else [one for one in tries.by_id.values() if not one.has_ended]
    return {one.try_id: [each.row.trial_id for each in one.trials] for one in chosen}
