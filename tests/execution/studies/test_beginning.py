"""A try is begun whole, or it is seen that it was not."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from home.journals import new_trial

from core_sdk._analysis.studies import read_board
from core_sdk._analysis.studies._alarms import alarms
from core_sdk._execution.studies import TryRequest, await_tries, begin_try
from core_sdk._execution.studies._line import TrialInLine, read_line, this_host, write_waiting
from core_sdk._execution.studies._serving import serve
from core_sdk._ground.records import CodeRecord, SearcherMetric, Settled, StudyRecord
from core_sdk._home import Home, open_view
from core_sdk._home.finding.tries import read_tries
from core_sdk._home.states import WAITS_FOR_SLOTS

STUDY = StudyRecord(directory="/", best_by="max.accuracy", command=["python", "train.py"])


def test_a_full_disk_leaves_nothing_half_made(small_disk: Path, tmp_path: Path) -> None:
    """The code does not fit: no trial is there, nothing waits, and the error is that of the disk."""
    home = Home.create(small_disk / "home")
    experiment_id = home.find_or_create_experiment("rates").experiment_id
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("pass\n")
    (tmp_path / "work" / "weights.py").write_bytes(
        b"# " + b"a" * 200_000
    )  # small when it is packed, for each seed large
    request = TryRequest(hypothesis="it fits", directory=tmp_path / "work", author="ann", num_seeds=8)

    with pytest.raises(OSError, match="No space left on device"):
        begin_try(home, experiment_id, STUDY, request)

    assert (home.trial_ids(), read_line(home)) == ([], [])
    assert [path.name for path in home.runs.iterdir() if any(path.iterdir())] == []


def test_seeds_that_were_never_begun_are_an_alarm(home: Home) -> None:
    """A `try` that was killed after two of three seeds has two trials, which say so."""
    for seed in range(2):
        folder = new_trial(home)
        folder.write_record(
            msgspec.structs.replace(
                folder.read_record(), try_id=1, seed=seed, num_seeds=3, code=CodeRecord(sha256="a" * 64)
            )
        )

    with open_view(home) as view:
        tries = read_tries(view, 1, SearcherMetric.named("max.accuracy"))
        told = alarms(home, view, tries, tries.by_id[1])

    assert "2 of 3 seeds: `try --again --seeds 1` adds the others" in told


def test_what_a_killed_try_has_left_is_removed(home: Home) -> None:
    """A trial whose record was never written leaves the line, and its copy of the code does not stay."""
    Home.create(home.root)
    folder = home.create_trial()
    (folder.path / "code").mkdir()
    write_waiting(home, TrialInLine(trial_id=1, host=this_host(), author="ann", num_slots=1))
    os.utime(home.root / "tries" / "1.json", (1e9, 1e9))

    serve(home)

    assert (read_line(home), list(folder.path.iterdir())) == ([], [])


def test_a_machine_runs_only_the_tries_that_were_begun_on_it(home: Home) -> None:
    """What another machine's line has is left to it, and who waits for it goes on waiting."""
    folder = new_trial(home)
    folder.append_change(Settled(time=2e9, state="PAUSED", reason=WAITS_FOR_SLOTS, attempt=0))
    write_waiting(home, TrialInLine(trial_id=1, host="another", author="ann", num_slots=1))

    serve(home)
    waited = list(await_tries(home, {1: [1]}, timeout_s=0.0))
    folder.append_change(Settled(time=2e9, state="COMPLETED", reason="resumed here", attempt=0))
    waited_again = list(await_tries(home, {1: [1]}))

    assert (read_line(home), folder.attempts()) == ([], [])
    assert (waited, waited_again) == ([], [1])


def test_a_board_names_the_machine_of_a_try_that_waits(home: Home) -> None:
    """A try that was begun on another machine waits for the slots of that one."""
    folder = new_trial(home)
    folder.write_record(msgspec.structs.replace(folder.read_record(), try_id=1, code=CodeRecord(sha256="a" * 64)))
    folder.append_change(Settled(time=2e9, state="PAUSED", reason=WAITS_FOR_SLOTS, attempt=0))
    write_waiting(home, TrialInLine(trial_id=1, host="gpu7", author="ann", num_slots=1))

    with open_view(home) as view:
        board = read_board(home, view, 1, STUDY)

    assert [one.waits_on for one in board.tries] == ["gpu7"]


def test_an_editable_package_of_the_code_is_imported_from_the_copy(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment would import from the work tree comes from the code of the try; other projects stay."""
    work = tmp_path / "work"
    for name, project in (("inside", work), ("outside", tmp_path / "other")):
        (project / "src" / name).mkdir(parents=True)
        (project / "src" / name / "__init__.py").write_text("")
        told = tmp_path / "site" / f"{name}-1.0.dist-info"
        told.mkdir(parents=True)
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (told / "direct_url.json").write_text(f'{{"dir_info": {{"editable": true}}, "url": "{project.as_uri()}"}}')
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (work / "train.py").write_text("import inside\n")
    Home.create(home.root)
    study = msgspec.structs.replace(STUDY, command=["true", "train.py"])
    experiment_id = home.find_or_create_experiment("rates").experiment_id

    begin_try(home, experiment_id, study, TryRequest(hypothesis="", directory=work, author="ann", num_seeds=1))
    for _ in await_tries(home, {1: [1]}):
        pass

    command = home.folder(1).read_command()
    assert command is not None
    assert command.environment["PYTHONPATH"] == str(home.folder(1).code_path / "src")
