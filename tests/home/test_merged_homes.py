"""The trials of one home are taken into another, whole and once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from client.trainings import Training
from interfaces.cli.recorded import damage, new_attempt, new_trial, store
from promises import promise
from saving import checkpoint_ids

from core_sdk._execution.steering import trials
from core_sdk._ground.records import (
    CommandRecord,
    ExperimentBegun,
    ExperimentEnded,
    HomeRecord,
    Record,
    SearchRecord,
    SubmissionRecord,
    TrialDescribed,
    TrialNumbered,
    encode_file,
)
from core_sdk._home import Home, open_view
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.history import read_history
from core_sdk._home.journal import encode_line
from core_sdk._home.moving.archive import export_trials, import_trials
from core_sdk._home.moving.merging import Merged, merge
from core_sdk._home.registry import Registry
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import HomeTooNewError, RecordDamagedError, TrialRunningError


@pytest.fixture
def cluster(tmp_path: Path) -> Home:
    """A home with one trial, whose id is 1."""
    home = Home.create(tmp_path / "cluster")
    training(home, "of-cluster").end()
    return home


@pytest.fixture
def laptop(tmp_path: Path) -> Home:
    """A home with two trials; the second continues the first, which also has a checkpoint elsewhere."""
    home = Home.create(tmp_path / "laptop")
    first = training(home, "first")
    store(first, "outside", 3, tmp_path / "shared")
    first.end()
    first.folder.media_path.mkdir()
    (first.folder.media_path / "x.png").write_bytes(b"image")
    first.folder.log_path(1).write_text("trains\n")
    first.folder.append_change(TrialDescribed(time=1.0, name="the best", notes="diverges"))
    code = first.folder.code_path
    code.mkdir()
    first.folder.write_command(CommandRecord(argv=["python", str(code / "x.py")], cwd=str(code), environment={}))
    second = new_attempt(new_trial(home, continued_from="first", hparams={"lr": 0.5}))
    second.report(1, loss=0.25)
    second.end()
    registry = Registry(home)
    registry.register(registry.create("digits", "", {}, []).model_id, first.folder, "first", "", "")
    return home


def training(home: Home, storage_id: str) -> Training:
    attempt = new_attempt(new_trial(home))
    attempt.report(1, loss=1.0)
    store(attempt, storage_id, 2)
    return attempt


def submitted(home: Home, state: str = "COMPLETED") -> int:
    """Records a submitted search with one trial."""
    folder = new_trial(home, experiment="search")
    experiment = home.experiment(folder.read_record().experiment_id)
    with experiment.edit() as record:
        record.is_submitted = True
        record.search = SearchRecord(searcher="random", state=state, num_trials=1)  # type: ignore[arg-type]
    experiment.write_submission(SubmissionRecord(cwd="/", code="abc"))
    experiment.write_config({"name": "search"})
    home.code.mkdir()
    home.code_archive("abc").write_bytes(b"code")
    request_id = "6f6b0d9c-2b0d-4a53-9d1e-30f1f3c1d001"
    events: list[Record] = [
        ExperimentBegun(time=1.0, format=1),
        msgspec.convert(
            {"type": "trial_created", "time": 1.0, "request_id": request_id, "trial_id": folder.trial_id}, TrialNumbered
        ),
        ExperimentEnded(time=2.0, state="COMPLETED", reason=""),
    ]
    experiment.events_path.write_bytes(b"".join(map(encode_line, events)))
    new_attempt(folder).end()
    return experiment.experiment_id


def by_file(home: Home, other: Home) -> Merged:
    path = other.root.with_name("trials.tar")
    path.unlink(missing_ok=True)
    export_trials(other, other.trial_ids(), path)
    return import_trials(home, path)


@promise("merge-takes-once")
@pytest.mark.parametrize("take", [merge, by_file])
def test_trials_come_whole_under_new_ids_and_once(
    cluster: Home, laptop: Home, tmp_path: Path, take: Callable[[Home, Home], Merged]
) -> None:
    """A merge takes trials once, under new ids, with their checkpoints, names, media, output and code."""
    before = {path: path.read_bytes() for path in laptop.root.rglob("*") if path.is_file()}

    merged, again = take(cluster, laptop), take(cluster, laptop)

    assert (merged.taken, merged.left) == ({1: 2, 2: 3}, [])
    assert (again.taken, again.known, again.left) == ({}, {1: 2, 2: 3}, [])
    assert {path: path.read_bytes() for path in before} == before
    first, second = cluster.folder(2), cluster.folder(3)
    assert [each.record.storage_id for each in read_history(first).checkpoints] == ["first", "outside"]
    assert checkpoint_ids(DirectoryStorage(cluster.checkpoints)) == ["first", "of-cluster"]
    assert newest_good_checkpoint(second).storage_id == "first"
    assert (first.media_path / "x.png").read_bytes() == b"image"
    assert first.log_path(1).read_text() == "trains\n"
    command = first.read_command()
    assert command is not None
    assert (command.cwd, command.argv[1]) == (str(first.code_path), str(first.code_path / "x.py"))
    with open_view(cluster) as view:
        assert {row.trial_id: (row.name, row.notes) for row in view.trials()}[2] == ("the best", "diverges")
        assert view.trial(3).hparams["lr"] == 0.5
        assert [report.metrics["loss"] for report in view.reports(3)] == [0.25]
    trials.delete(cluster, 3)
    trials.delete(laptop, 2)
    assert checkpoint_ids(DirectoryStorage(tmp_path / "shared")) == ["outside"]


@promise("merge-takes-once")
@pytest.mark.parametrize("take", [merge, by_file])
def test_what_a_trial_says_of_another_is_true_after_a_merge(
    cluster: Home, laptop: Home, take: Callable[[Home, Home], Merged]
) -> None:
    """The trial that is varied, and the one that has begun another, are named by their ids here, or not at all."""
    for trial_id, other in ((1, 99), (2, 1)):
        record = laptop.folder(trial_id).read_record()
        record.parent = record.started_by = other
        laptop.folder(trial_id).write_record(record)

    take(cluster, laptop)
    here = [cluster.folder(trial_id).read_record() for trial_id in (2, 3)]

    assert [(one.parent, one.started_by) for one in here] == [(None, None), (2, 2)]


def test_models_come_along_and_their_checkpoints_outside_stay_the_others(
    cluster: Home, laptop: Home, tmp_path: Path
) -> None:
    """Models are merged by name, and checkpoints in other storages still belong to the first home."""
    registry = Registry(cluster)
    registry.register(registry.create("digits", "", {}, []).model_id, cluster.folder(1), "of-cluster", "", "")

    for _ in range(2):
        merge(cluster, laptop)

    assert [(each.version, each.checkpoint) for each in registry.model("digits").versions] == [
        (1, "of-cluster"),
        (2, "first"),
    ]
    outside = read_history(cluster.folder(2)).checkpoints[1]
    assert outside.is_inherited
    trials.delete(laptop, 2)
    Registry(laptop).delete(1)
    trials.delete(laptop, 1)
    assert checkpoint_ids(DirectoryStorage(tmp_path / "shared")) == []


def test_a_search_comes_with_its_trials_and_decisions(cluster: Home, tmp_path: Path) -> None:
    """A search is merged with its configuration, code and events, which use the new trial ids."""
    laptop = Home.create(tmp_path / "laptop")
    submitted(laptop)

    merged, again = merge(cluster, laptop), merge(cluster, laptop)

    assert (merged.taken, merged.left, again.taken) == ({1: 2}, [], {})
    experiment = cluster.experiment(cluster.folder(2).read_record().experiment_id)
    assert experiment.read().is_submitted and experiment.read().experiment_id == experiment.experiment_id
    assert b'"trial_id":2' in experiment.events_path.read_bytes()
    assert cluster.code_archive("abc").read_bytes() == b"code"
    assert len(cluster.experiment_ids()) == 2


@pytest.mark.parametrize("cut", ["before its trials", "between them"])
def test_a_merge_that_was_killed_is_finished_by_the_next(cluster: Home, tmp_path: Path, cut: str) -> None:
    """A merge that was killed before or between a search's trials is completed by the next merge."""
    laptop = Home.create(tmp_path / "laptop")
    submitted(laptop)
    training(laptop, "other").end()
    merge(cluster, laptop)
    shutil.rmtree(cluster.root / "runs" / ("2" if cut == "before its trials" else "3"))
    (cluster.root / "merging" / "2").mkdir(parents=True)

    merged = merge(cluster, laptop)

    assert sorted(cluster.trial_ids()) == [1, 2, 3]
    assert len(merged.taken) == 1 and merged.left == []
    assert not (cluster.root / "merging").exists()


@promise("merge-takes-once")
def test_both_homes_are_sound_after_a_kill_at_any_time(cluster: Home, laptop: Home, tmp_path: Path) -> None:
    """After a kill at any time both homes are intact, and the next merge takes the rest."""
    for steps in range(30):
        training(laptop, f"many-{steps}").end()
    code = "import sys; from pathlib import Path; from core_sdk._home import Home\n"
    code += "from core_sdk._home.moving.merging import merge\nmerge(*(Home(Path(each)) for each in sys.argv[1:]))"
    for num_trials in (3, 9, 20):
        process = subprocess.Popen([sys.executable, "-c", code, str(cluster.root), str(laptop.root)])
        while len(cluster.trial_ids()) < num_trials and process.poll() is None:
            pass
        process.kill()
        process.wait()
        for trial_id in cluster.trial_ids():
            for checkpoint in read_history(cluster.folder(trial_id)).checkpoints:
                if checkpoint.record.storage_id != "outside":
                    DirectoryStorage(cluster.checkpoints).verify(checkpoint.record.storage_id)

    merged = merge(cluster, laptop)

    assert len(cluster.trial_ids()) == 33 and len(laptop.trial_ids()) == 32
    assert len(merged.taken) + len(merged.known) == 32 and merged.left == []
    assert len(checkpoint_ids(DirectoryStorage(cluster.checkpoints))) == 32


@promise("merge-takes-once")
def test_what_cannot_be_taken_is_named_and_the_rest_comes(cluster: Home, tmp_path: Path) -> None:
    """A trial that runs, a search that has not ended, and damaged records and checkpoints are named."""
    laptop = Home.create(tmp_path / "laptop")
    for storage_id in ("goes on", "record", "checkpoint", "journal"):
        training(laptop, storage_id).end()
    running = training(laptop, "running")
    submitted(laptop, "ACTIVE")
    (laptop.folder(2).path / "trial.json").write_text("{")
    damage(laptop, "checkpoint")
    with laptop.folder(4).journal_path(1).open("ab") as journal:
        journal.write(b"00000000 {}\n")
    first = merge(cluster, laptop)
    new_attempt(laptop.folder(1)).end()
    running.end()

    second = merge(cluster, laptop)

    assert [left.partition(": ")[0] for left in first.left] == [
        "experiment 2 and its trials",
        "trial 2",
        "checkpoint checkpoint of trial 3",
        "trial 5",
    ]
    assert first.taken == {1: 2, 3: 3, 4: 4}
    assert (second.taken, second.grown) == ({5: 5}, [1])


def test_files_and_homes_that_cannot_be_taken_are_refused(cluster: Home, laptop: Home, tmp_path: Path) -> None:
    """A running trial, a damaged file or a newer home is refused and leaves nothing in the home."""
    running = training(laptop, "running")
    with pytest.raises(TrialRunningError):
        export_trials(laptop, [3], tmp_path / "running.tar")
    running.end()
    export_trials(laptop, [1, 2], tmp_path / "trials.tar")
    with pytest.raises(FileExistsError):
        export_trials(laptop, [1], tmp_path / "trials.tar")
    whole = (tmp_path / "trials.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.tar").write_text("no archive")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(tmp_path / "text.tar", "text")
    (laptop.root / "home.json").write_bytes(encode_file(HomeRecord(format=99, sdk_version="9")))

    for name in ("cut.tar", "text.tar", "other.tar"):
        with pytest.raises(RecordDamagedError):
            import_trials(cluster, tmp_path / name)
    with pytest.raises(HomeTooNewError):
        merge(cluster, Home.open(laptop.root))

    assert cluster.trial_ids() == [1]
    assert not (cluster.root / "merging").exists()
