"""The homes of several people, read as one."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from home.journals import append, lines, new_trial, record, report, started, stored, vary
from parts import needs
from processes import wait_for

from core_sdk._execution.steering import trials as verbs
from core_sdk._execution.steering.table import VERBS
from core_sdk._execution.steering.verb import Verb
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import FORMAT, MANIFEST_NAME, HomeRecord, TrialLabelsChanged, encode_file
from core_sdk._home import Home, open_view
from core_sdk._home.folders.gathering import GatheredHome, gathered_home
from core_sdk._home.rows import TrialRow
from core_sdk._home.view import View
from core_sdk.client import Tracker
from core_sdk.errors import HomeNotWritableError, HomesOnlyReadError, TrialNotFoundError, TrialNotRunningError


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a lab with the homes of ada and bob, each with two trials. The reader has a home elsewhere."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "own"))
    for name, time_s in (("ada", 100), ("bob", 200)):
        home = Home(tmp_path / "lab" / name / "core-sdk")
        for number in (1, 2):
            folder = new_trial(home, lr=0.1 * number)
            record(folder, report(1, loss=0.5 / number), stored(f"{name}-{number}", 1, storage="home:checkpoints"))
            (home.checkpoints / f"{name}-{number}").mkdir()
            (home.checkpoints / f"{name}-{number}" / MANIFEST_NAME).write_text("{}")
            os.utime(folder.path, (time_s + number, time_s + number))
        vary(home.folder(2), 1, "smaller is better")
        os.utime(home.folder(2).path, (time_s + 2, time_s + 2))
    return tmp_path / "lab"


def pattern(lab: Path) -> list[str]:
    return [str(lab / "*" / "core-sdk")]


def rows(lab: Path) -> list[TrialRow]:
    with open_view(gathered_home(pattern(lab))) as view:
        return view.trials()


def whose(found: list[TrialRow]) -> dict[int, str]:
    """Returns the home of each trial, by the trial's number."""
    return {row.trial_id: Path(row.home).parent.name for row in found}


def contents(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Returns all that a write into the directory would change."""
    states = ((str(path), path.lstat()) for path in [directory, *directory.rglob("*")])
    return {name: (state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states}


def test_trials_have_numbers_and_bonds_of_their_own(lab: Path) -> None:
    """Trials come with their home, and with numbers in the order of their times; what they name is numbered, too."""
    before = contents(lab)

    found = rows(lab)

    assert whose(found) == {1: "ada", 2: "ada", 3: "bob", 4: "bob"}
    assert [row.parent for row in found] == [None, 1, None, 3]
    assert [row.experiment_id for row in found] == [1, 1, 2, 2]
    assert [row.experiment_name for row in found] == ["digits"] * 4
    assert [row.latest_checkpoint for row in found] == ["ada-1", "ada-2", "bob-1", "bob-2"]
    assert {row.owner for row in found} == {lab.owner()}
    assert contents(lab) == before
    with open_view(Home.open(lab / "bob" / "core-sdk")) as view:
        assert [row.name for row in found[2:]] == [row.name for row in view.trials()]
    assert (lab.parent / "own").stat().st_mode & 0o77 == 0
    gathered = gathered_home(pattern(lab))
    with open_view(gathered) as view:
        assert gathered.local_trials(2)(1) == 3
        assert gathered.local_trials(2)(99) == 0
        assert {row.storage for row in view.checkpoints(trial_id=3)} == {f"file://{lab}/bob/core-sdk/checkpoints"}
        assert [Path(row.home).parent.name for row in view.experiments()] == ["ada", "bob"]


def test_a_number_is_never_used_again(lab: Path) -> None:
    """What is deleted or gone leaves its number free for ever, also for a reader that starts anew."""
    rows(lab)
    Home(lab / "ada" / "core-sdk").folder(2).clear()
    shutil.rmtree(lab / "bob")

    assert whose(rows(lab)) == {1: "ada"}

    new_trial(Home(lab / "eve" / "core-sdk"))
    new_trial(Home(lab / "ada" / "core-sdk"))
    assert whose(rows(lab)) in ({1: "ada", 5: "eve", 6: "ada"}, {1: "ada", 5: "ada", 6: "eve"})


def test_a_running_trial_is_followed(lab: Path) -> None:
    """An open view sees what a trial reports, that it lives, a trial that begins, and the end."""
    home = Home(lab / "ada" / "core-sdk")
    with open_view(gathered_home(pattern(lab))) as view:
        folder = new_trial(home)
        append(folder, 1, lines(started(folder), report(1, loss=2.0)))
        lock = AliveLock(folder.alive_path(1))
        view.refresh()
        begun = view.trial(5)
        append(folder, 1, lines(report(2, loss=1.0)))
        view.refresh(only_open=True)
        trained = view.trial(5)
        lock.release()
        folder.alive_path(1).unlink()
        ended = view.trial(5)

    assert (begun.state, begun.steps_completed) == ("ACTIVE", 1)
    assert (trained.state, trained.steps_completed) == ("ACTIVE", 2)
    assert ended.state == "ERROR"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (encode_file(HomeRecord(format=FORMAT + 1, sdk_version="9")), "newer version"),
        (b"{", ""),
    ],
    ids=["of a newer version", "damaged"],
)
def test_a_home_that_cannot_be_read_is_left_out_and_named(lab: Path, content: bytes, reason: str) -> None:
    """Others are shown; the home is there again once it can be read."""
    record_path = Home(lab / "bob" / "core-sdk").record
    sound = record_path.read_bytes()
    record_path.write_bytes(content)

    with open_view(gathered_home(pattern(lab))) as view:
        assert whose(view.trials()) == {1: "ada", 2: "ada"}
        (told,) = view.left_out()
        assert told.startswith(f"{lab}/bob/core-sdk: ") and reason in told
        record_path.write_bytes(sound)
        view.refresh()
        assert whose(view.trials()) == {1: "ada", 2: "ada", 3: "bob", 4: "bob"}
        assert view.left_out() == []


def test_a_damaged_trial_is_named_by_its_own_path(lab: Path) -> None:
    """The record that cannot be read is named as its owner knows it."""
    path = Home(lab / "bob" / "core-sdk").folder(1).path
    (path / "trial.json").write_bytes(b"{")

    with open_view(gathered_home(pattern(lab))) as view:
        assert len(view.trials()) == 3
        assert view.left_out() == [str(path)]


@contextlib.contextmanager
def hanging(directory: Path) -> Iterator[None]:
    """Within the block, whoever looks into the directory waits, as for a file server that has died."""
    libc = ctypes.CDLL(None, use_errno=True)
    daemon = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={daemon},rootmode=40000,user_id=0,group_id=0,allow_other"
    assert libc.mount(b"test", bytes(directory), b"fuse", 0, options.encode()) == 0
    try:
        yield
    finally:
        os.close(daemon)
        libc.umount2(bytes(directory), 2)  # MNT_DETACH


def await_shown(view: View, expected: dict[int, str]) -> None:
    """Refreshes until just these trials are shown: a home that is slow may come later, and one that hung again."""

    def is_shown() -> bool:
        view.refresh()
        return whose(view.trials()) == expected

    wait_for(is_shown)


@needs("fuse")
def test_a_home_that_hangs_is_left_out_and_named(lab: Path) -> None:
    """The other homes are shown, at the first look and when it begins to hang later, and it comes back."""
    gathered = gathered_home(pattern(lab))
    with hanging(lab / "bob"), open_view(gathered) as view:
        await_shown(view, {1: "ada", 2: "ada"})
        assert view.left_out() == [f"{lab}/bob/core-sdk: it does not answer within 1 s"]

    with open_view(gathered) as view:
        await_shown(view, {1: "ada", 2: "ada", 3: "bob", 4: "bob"})
        with hanging(lab / "ada"):
            await_shown(view, {3: "bob", 4: "bob"})


def test_what_is_of_no_single_home_is_refused(lab: Path) -> None:
    """A model, a home and a study have no home of their own there. Nothing is written through the links."""
    tracker, before = Tracker(homes=pattern(lab)), contents(lab)
    tracker.list_trials()

    with pytest.raises(HomesOnlyReadError, match="set CORE_SDK_HOME to one of them"):
        tracker.create_model("digits")
    with pytest.raises(HomeNotWritableError):
        Home.create(tracker.home.root)
    with pytest.raises(HomeNotWritableError):
        tracker.begin_study("study", "loss")
    with pytest.raises(HomesOnlyReadError), tracker.home.experiment(2).edit() as record:
        record.notes = "written with the numbers of several homes"
    with pytest.raises(HomesOnlyReadError):
        tracker.home.trial(3).append_change(TrialLabelsChanged(time=1.0, added=["seen"]))

    assert contents(lab) == before


def test_what_lies_in_a_home_of_ones_own_is_changed_there(lab: Path) -> None:
    """Verbs reach the trials, experiments and checkpoints of such a home by their numbers there, and no other file."""
    tracker, before = Tracker(homes=pattern(lab)), contents(lab / "ada")
    own = Tracker(lab / "bob" / "core-sdk")
    trial, experiment, checkpoint = tracker.get_trial(3), tracker.get_experiment(2), tracker.get_checkpoint("bob-1")

    trial.set_notes("mine")
    trial.add_label("paper")
    trial.set_verdict("keep", "it is better")
    trial.archive()
    experiment.set_labels(["night"])
    experiment.set_notes("of bob")
    checkpoint.pin("for the paper")
    checkpoint.add_metadata({"used": True})
    tracker.get_trial(4).delete()

    there = own.get_trial(1)
    assert (there.notes, there.labels, there.verdict, there.archived) == ("mine", {"paper"}, "keep", True)
    assert (trial.id, trial.notes, trial.experiment_id) == (3, "mine", 2)
    assert own.get_experiment(1).labels == {"night"} == experiment.labels
    assert own.get_experiment(1).notes == "of bob"
    assert Home(lab / "bob" / "core-sdk").experiment(1).read().experiment_id == 1
    assert own.get_checkpoint("bob-1").is_pinned and checkpoint.metadata == {"used": True}
    assert [one.id for one in own.list_trials()] == [1]
    assert [one.id for one in tracker.list_trials()] == [1, 2, 3]
    assert contents(lab / "ada") == before


def test_an_error_tells_the_number_in_the_home_too(lab: Path) -> None:
    """A verb that fails names the trial as the home of the trial does, and says which number that is here."""
    trial = Tracker(homes=pattern(lab)).get_trial(4)

    with pytest.raises(TrialNotRunningError) as caught:
        trial.kill()

    command = f"CORE_SDK_HOME={lab}/bob/core-sdk core-sdk trial describe 2"
    assert str(caught.value).endswith(f"(trial 4 of all these homes is that of `{command}`)")
    with pytest.raises(TrialNotFoundError):
        verbs.kill(trial._home, 99, by="test")


def test_a_writer_reports_about_a_trial_in_its_home(lab: Path) -> None:
    """`Trial.writer` of several homes writes where the trial lies."""
    with Tracker(homes=pattern(lab)).get_trial(3).writer("evaluator") as context:
        context.train.report_validation_metrics(1, {"accuracy": 0.5})

    assert Tracker(lab / "bob" / "core-sdk").get_trial(1).writers[0].name == "evaluator"


def arguments_for(verb: Verb[..., Any]) -> dict[str, Any]:
    """Returns what a verb needs to be done to the last trial, its experiment or its checkpoint."""
    known = {"trial_id": 4, "experiment_id": 2, "storage_id": "bob-2", "model_id": 1, "version": 1, "by": "test"}
    needed = inspect.signature(verb.function).parameters.values()
    return {one.name: known.get(one.name, "text") for one in needed if one.default is one.empty and one.name != "home"}


@needs("other users")
@pytest.mark.parametrize(
    "verb", [one for one in VERBS if not one.only_reads], ids=lambda one: f"{one.subject} {one.name}"
)
def test_the_home_of_another_user_is_never_changed(lab: Path, verb: Verb[..., Any]) -> None:
    """Every verb is refused there, also for root, whom no permissions stop."""
    os.chown(lab / "bob" / "core-sdk", 61002, -1)
    tracker, before = Tracker(homes=pattern(lab)), contents(lab)
    tracker.list_trials()

    with pytest.raises(HomesOnlyReadError):
        verb(tracker.home, **arguments_for(verb))

    assert contents(lab) == before


@needs("other users")
def test_a_foreign_trial_is_named_with_its_owner(lab: Path) -> None:
    """Whoever may not change a trial learns who may, also where a function is no verb."""
    os.chown(lab / "bob" / "core-sdk", 61002, -1)
    tracker = Tracker(homes=pattern(lab))
    message = f"trial 3 lies in the home {lab}/bob/core-sdk, which is 61002's: only 61002 can change it"

    with pytest.raises(HomesOnlyReadError, match=re.escape(message)):
        tracker.get_trial(3).set_notes("not mine")
    with pytest.raises(HomesOnlyReadError):
        tracker.get_trial(3).writer("evaluator")
    with pytest.raises(HomesOnlyReadError):
        tracker.get_experiment(2).set_labels(["not mine"])
    with pytest.raises(HomesOnlyReadError):
        tracker.get_checkpoint("bob-1").add_metadata({"a": 1})
    with pytest.raises(HomesOnlyReadError):
        tracker.get_checkpoint("bob-1").remove_files(["weights"], force=True)
    assert tracker.home.own_homes() == [f"{lab}/ada/core-sdk"]


@needs("other users")
def test_a_home_that_leads_into_another_one_is_not_ones_own(lab: Path) -> None:
    """A stranger's home whose trials are links to one's own is refused, as is a link to a stranger's home."""
    ada, eve = Home(lab / "ada" / "core-sdk"), Home.create(lab / "eve" / "core-sdk")
    (eve.runs / "1").symlink_to(ada.runs / "1")
    os.chown(eve.root, 61003, -1)
    (lab / "zoe").mkdir()
    (lab / "zoe" / "core-sdk").symlink_to(eve.root)
    tracker, before = Tracker(homes=pattern(lab)), contents(ada.root)
    with tracker.index() as view:
        through = {Path(row.home).parent.name: row.trial_id for row in view.trials()}

    for name in ("eve", "zoe"):
        with pytest.raises(HomesOnlyReadError):
            tracker.get_trial(through[name]).set_notes("changed through a link")

    assert contents(ada.root) == before


def test_the_client_reads_homes_as_one(lab: Path) -> None:
    """`Tracker(homes=…)` finds trials of all homes, and their metrics."""
    tracker = Tracker(homes=str(lab / "*" / "core-sdk"))

    assert [trial.id for trial in tracker.list_trials()] == [1, 2, 3, 4]
    found = [metrics.metrics for metrics in tracker.iter_trials_metrics([2, 3], "training")]
    assert found == [{"loss": 0.25}, {"loss": 0.5}]


def test_several_readers_give_the_same_numbers(lab: Path) -> None:
    """Two views that find the same trial at the same time give it one number."""
    first, second = (GatheredHome(lab.parent / "own", pattern(lab)) for _ in range(2))
    with open_view(first) as one, open_view(second) as other:
        for name in ("ada", "bob", "ada"):
            new_trial(Home(lab / name / "core-sdk"))
            one.refresh()
        other.refresh()
        assert whose(one.trials()) == whose(other.trials())
        assert sorted(whose(one.trials())) == [1, 2, 3, 4, 5, 6, 7]
