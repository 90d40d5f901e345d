"""A study that is taken into another home stays one: its tries, their parents and their code."""

from __future__ import annotations

from pathlib import Path

from home.journals import new_trial, record, report

from core_sdk._execution.experiments.code import check_archive, pack
from core_sdk._ground.records import CodeRecord, StudyRecord
from core_sdk._home import Home
from core_sdk._home.moving.archive import export_trials, import_trials
from core_sdk._home.moving.merging import merge


def test_tries_keep_together_under_new_ids(tmp_path: Path) -> None:
    """The trials of a try have the new id of its first trial, and what they ran comes with them."""
    here, there = Home.create(tmp_path / "here"), Home.create(tmp_path / "there")
    record(new_trial(here, "digits"), report(1, "validation", accuracy=0.5))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("pass\n")
    sha256 = pack(there, tmp_path / "work").sha256
    folders = [new_trial(there, "rates") for _ in range(2)]
    for folder in folders:
        trial = folder.read_record()
        trial.try_id, trial.code, trial.seed = folders[0].trial_id, CodeRecord(sha256=sha256), folder.trial_id
        folder.write_record(trial)
        record(folder, report(1, "validation", accuracy=0.8))
    with there.find_or_create_experiment("rates").edit() as experiment:
        experiment.study = StudyRecord(directory="/work", best_by="max.accuracy")

    taken = merge(here, there).taken

    assert {here.trial(taken[each.trial_id]).read_record().try_id for each in folders} == {taken[folders[0].trial_id]}
    check_archive(here, sha256)
    found = here.find_experiment("rates")
    assert found is not None
    assert found.read().study == StudyRecord(directory="/work", best_by="max.accuracy")


def test_an_exported_try_takes_its_code_along(tmp_path: Path) -> None:
    """The archive of the code is in the file, and a link to data, which another machine has not, is left out."""
    here, there = Home.create(tmp_path / "here"), Home.create(tmp_path / "there")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("pass\n")
    sha256 = pack(there, tmp_path / "work").sha256
    folder = new_trial(there, "rates")
    trial = folder.read_record()
    trial.try_id, trial.code = folder.trial_id, CodeRecord(sha256=sha256)
    folder.write_record(trial)
    record(folder, report(1, "validation", accuracy=0.8))
    folder.code_path.mkdir()
    (folder.code_path / "data").symlink_to(tmp_path / "work")

    export_trials(there, [folder.trial_id], tmp_path / "trial.tar")
    taken = import_trials(here, tmp_path / "trial.tar").taken

    check_archive(here, sha256)
    assert [*taken] == [folder.trial_id]
