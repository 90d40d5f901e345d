"""The code of tries stays in the home as long as a try needs it."""

from __future__ import annotations

from pathlib import Path

from home.journals import new_trial

from core_sdk._execution.experiments.code import pack
from core_sdk._ground.records import CodeRecord
from core_sdk._home import Home
from core_sdk._home.deletion import delete_experiment


def test_the_code_of_tries_goes_with_the_last_of_them(home: Home, tmp_path: Path) -> None:
    """A study that is deleted takes its code along, unless another one has the same."""
    Home.create(home.root)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("pass\n")
    sha256 = pack(home, tmp_path / "work").sha256
    ids = []
    for name in ("first", "second"):
        folder = new_trial(home, name)
        trial = folder.read_record()
        trial.try_id, trial.code = folder.trial_id, CodeRecord(sha256=sha256)
        folder.write_record(trial)
        ids.append(trial.experiment_id)

    delete_experiment(home, ids[0])
    is_kept = home.code_archive(sha256).exists()
    delete_experiment(home, ids[1])

    assert (is_kept, home.code_archive(sha256).exists()) == (True, False)
