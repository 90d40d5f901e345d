"""A home that is copied while it trains, and merged: what went on there comes with a later merge, or is named."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from client.trainings import Training
from home.journals import append, lines, report, started, stored
from interfaces.cli.recorded import new_attempt, new_trial
from processes import Script
from promises import promise
from saving import store_alone

from core_sdk._execution.steering import checkpoints
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import (
    CheckpointDeleted,
    CheckpointPinned,
    CommandRecord,
    ExitRecord,
    TrialDescribed,
    TrialLabelsChanged,
)
from core_sdk._home import Home, open_view
from core_sdk._home.history import read_history
from core_sdk._home.moving.merging import merge
from core_sdk._home.storage import DirectoryStorage


def training(home: Home) -> Iterator[None]:
    """Trains for two attempts, with another rank, a writer, checkpoints and changes. Pauses at each moment."""
    folder = new_trial(home, experiment="train.py")
    record = folder.read_record()
    folder.write_record(msgspec.structs.replace(record, is_defined=False))
    yield
    first = new_attempt(folder)
    named = home.find_or_create_experiment("digits").experiment_id
    folder.write_record(msgspec.structs.replace(record, experiment_id=named, hparams={"lr": 0.1}))
    folder.log_path(1).write_text("begins\n")
    yield
    first.report(1, loss=1.0)
    append(folder, 1, lines(started(folder, rank=1), report(1, loss=2.0)), rank=1)
    yield
    save(first, "one", 1)
    with folder.log_path(1).open("a") as log:
        log.write("has stored\n")
    yield
    append(folder, 1, lines(started(folder, rank="eval"), report(1, "validation", accuracy=0.5)), rank="eval")
    folder.media_path.mkdir()
    (folder.media_path / "x.png").write_bytes(b"image")
    yield
    first.report(2, loss=0.9)
    first.end("paused")
    folder.write_exit(1, ExitRecord(time=1.0, code=0))
    folder.append_change(CheckpointPinned(time=1.0, storage_id="one", note="good"))
    yield
    second = new_attempt(folder, resumed_steps=1, latest_checkpoint="one")
    folder.write_command(CommandRecord(argv=["again"], cwd="/", environment={}))
    second.report(2, loss=0.8)
    yield
    save(second, "two", 2)
    append(folder, 1, lines(report(2, "validation", accuracy=0.6)), rank="eval")
    yield
    second.end()
    folder.append_change(TrialDescribed(time=2.0, name="the best"))
    yield


def save(training: Training, storage_id: str, steps: int) -> None:
    """Stores a checkpoint as scripts do, whose records name a storage within the home by its relative path."""
    with DirectoryStorage(training.folder.home_root / "checkpoints").stage(storage_id) as staging:
        (staging.path / "weights.bin").write_bytes(b"weights")
        manifest = store_alone(staging, {"steps_completed": steps})
    stored_now = stored(storage_id, steps, "home:checkpoints")
    training.append(msgspec.structs.replace(stored_now, resources=manifest.resources))


def copies(tmp_path: Path) -> Iterator[Home]:
    """Yields a copy of a home at each moment of a training in it."""
    cluster = Home.create(tmp_path / "cluster")
    for moment, _ in enumerate(training(cluster)):
        yield Home(Path(shutil.copytree(cluster.root, tmp_path / f"copy-{moment}")))


def told(home: Home) -> object:
    """Returns all that a home says of its only trial, but for where it lies."""
    (trial_id,) = home.trial_ids()
    folder = home.folder(trial_id)
    with open_view(home) as view:
        rows = [*view.reports(trial_id, superseded=True), *view.checkpoints(), *view.trials()]
    record = folder.read_record()
    files = {
        path.relative_to(folder.path).as_posix(): path.read_bytes()
        for path in folder.path.rglob("*")
        if path.is_file() and path.suffix not in {".alive", ".supervised", ".lock", ".json"}
    }
    plain: list[dict[str, object]] = [msgspec.to_builtins(row) for row in rows]
    here = {"trial_id", "experiment_id", "storage", "is_inherited", "path"}
    values = [{name: value for name, value in row.items() if name not in here} for row in plain]
    return values, files, home.experiment(record.experiment_id).read().name, record.hparams, folder.read_command()


@promise("merge-takes-once")
def test_a_copy_of_any_moment_grows_by_the_next_one(tmp_path: Path) -> None:
    """Whatever moments of a training are merged, one after the other, the home has in the end what one merge takes."""
    made = list(copies(tmp_path))
    whole = Home.create(tmp_path / "whole")
    merge(whole, made[-1])
    expected = told(whole)

    step_by_step = Home.create(tmp_path / "steps")
    for copy in made:
        assert merge(step_by_step, copy).left == []
    assert told(step_by_step) == expected
    for moment, copy in enumerate(made[:-1]):
        home = Home.create(tmp_path / f"home-{moment}")
        merge(home, copy)
        merged, again = merge(home, made[-1]), merge(home, made[-1])
        assert (merged.grown, merged.left) == ([1], [])
        assert told(home) == expected
        # An older copy takes nothing back, and nothing comes twice.
        assert merge(home, copy).left == again.left == []
        assert (merge(home, copy).grown, again.grown) == ([], [])
        assert told(home) == expected
    assert {each.record.storage_id for each in read_history(whole.folder(1)).checkpoints} == {"one", "two"}


def test_a_copy_whose_files_are_of_different_moments_grows_likewise(tmp_path: Path) -> None:
    """What a copy lacks, since files are copied one after the other, is named, and comes with the next merge."""
    made = list(copies(tmp_path))
    whole = Home.create(tmp_path / "whole")
    merge(whole, made[-1])
    mixed = Home(Path(shutil.copytree(made[-2].root, tmp_path / "mixed")))
    shutil.rmtree(mixed.checkpoints / "two")
    journal = mixed.folder(1).journal_path(2)
    journal.write_bytes(made[-1].folder(1).journal_path(2).read_bytes()[:-30])
    home = Home.create(tmp_path / "home")

    first, second = merge(home, mixed), merge(home, made[-1])

    assert [one.partition(": ")[0] for one in first.left] == ["checkpoint two of trial 1"]
    assert (first.unended, second.left) == ([1], [])
    assert told(home) == told(whole)


def test_what_was_changed_here_stays(tmp_path: Path) -> None:
    """Labels, notes and deletions of either home stand side by side, and no file is deleted by a merge."""
    *earlier, last = copies(tmp_path)
    home = Home.create(tmp_path / "home")
    merge(home, earlier[-1])
    folder = home.folder(1)
    folder.append_change(TrialLabelsChanged(time=3.0, added=["mine"], removed=[]))
    checkpoints.delete(home, "two")
    last.folder(1).append_change(CheckpointDeleted(time=4.0, storage_id="one"))

    merged, again = merge(home, last), merge(home, last)

    assert (merged.grown, merged.left, again.grown, again.left) == ([1], [], [], [])
    with open_view(home) as view:
        row = view.trial(1)
        assert (row.name, row.labels, row.state) == ("the best", ("mine",), "COMPLETED")
    assert [each.record.storage_id for each in read_history(folder).checkpoints] == ["one"]
    assert (home.checkpoints / "one").exists() and not (home.checkpoints / "two").exists()


def test_what_was_begun_in_both_homes_is_named(tmp_path: Path) -> None:
    """Of attempts, writers and descriptions of both homes, this home's stay, and the others' are named each time."""
    *earlier, last = copies(tmp_path)
    home = Home.create(tmp_path / "home")
    merge(home, earlier[5])
    folder = home.folder(1)
    new_attempt(folder, resumed_steps=1, latest_checkpoint="one").end()
    append(folder, 1, lines(report(2, "validation", accuracy=0.1)), rank="eval")
    folder.append_change(TrialDescribed(time=3.0, notes="mine"))
    before = folder.journal_path(2).read_bytes()

    for _ in range(2):
        merged = merge(home, last)

        assert [one.rpartition(" here")[0].partition(",")[0] for one in merged.left] == [
            "trial 1: attempt 2 began there after it was taken",
            "trial 1: writer eval has reported there",
            "trial 1: its name",
        ]
    assert folder.journal_path(2).read_bytes() == before
    with open_view(home) as view:
        assert (view.trial(1).notes, view.trial(1).state) == ("mine", "COMPLETED")


def test_nothing_is_written_into_a_trial_that_runs_here(tmp_path: Path) -> None:
    """A trial that goes on in both homes is named while it runs here; a writer of the copy is taken meanwhile."""
    *earlier, last = copies(tmp_path)
    home = Home.create(tmp_path / "home")
    merge(home, earlier[5])
    running = AliveLock(home.folder(1).alive_path(1))

    merged = merge(home, last)
    append(earlier[5].folder(1), 1, lines(started(earlier[5].folder(1), rank="late")), rank="late")
    by_writer = merge(home, earlier[5])

    running.release()
    assert merged.left == [
        "trial 1: cannot extend trial 1: its attempt 1 is running. Pause it first with `core-sdk trial pause 1`."
    ]
    assert (by_writer.grown, by_writer.left) == ([1], [])


@promise("merge-takes-once")
def test_a_merge_that_is_cut_off_anywhere_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file is the last that a merge puts in its place, the next merge takes the rest of a trial."""
    *earlier, last = copies(tmp_path)
    whole = Home.create(tmp_path / "whole")
    merge(whole, last)
    expected = told(whole)
    replace, is_cut_off, cut = Path.replace, True, 0
    while is_cut_off:
        home = Home.create(tmp_path / f"cut-{cut}")
        merge(home, earlier[3])
        left = iter(range(cut))

        def replace_some(path: Path, target: Path, left: Iterator[int] = left) -> Path:
            if path.parent.parent.name == "merging" and next(left, None) is None:
                raise KeyboardInterrupt
            return replace(path, target)

        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            patched.setattr(Path, "replace", replace_some)
            merge(home, last)
            is_cut_off = False

        assert merge(home, last).left == []
        assert told(home) == expected
        cut += 1
    assert cut > 5


def test_a_home_is_copied_and_merged_again_and_again_while_it_trains(
    home: Home, tmp_path: Path, start_script: Callable[..., Script]
) -> None:
    """Each merge of a copy that was made during a training takes what has come since, and in the end all is there."""
    script = start_script(_TRAINING)
    laptop, copied, num_merges = Home.create(tmp_path / "laptop"), Home.create(tmp_path / "copied"), 0
    while script.process.poll() is None:
        # As rsync does, it goes on where a file is gone in the meantime.
        subprocess.run(["cp", "-a", f"{home.root}/.", str(copied.root)], stderr=subprocess.DEVNULL)
        num_merges += bool(merge(laptop, copied).known)
    script.wait()

    merged = merge(laptop, Home(Path(shutil.copytree(home.root, tmp_path / "last"))))

    assert num_merges > 1 and merged.left == [] and laptop.trial_ids() == [1]
    with open_view(home) as there, open_view(laptop) as here:
        assert here.trial(1).state == there.trial(1).state == "COMPLETED"
        assert list(here.reports(1)) == list(there.reports(1))
    ids = {each.record.storage_id for each in read_history(home.folder(1)).checkpoints}
    assert {each.record.storage_id for each in read_history(laptop.folder(1)).checkpoints} == ids and len(ids) == 5
    for storage_id in ids:
        DirectoryStorage(laptop.checkpoints).verify(storage_id)


_TRAINING = """
    import time
    from core_sdk import core
    with core.init(name="copied") as context:
        for step in range(1, 101):
            context.train.report_training_metrics(step, {"loss": 1 / step})
            if step % 20 == 0:
                with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                    (path / "weights").write_text(str(step))
            time.sleep(0.02)
"""
