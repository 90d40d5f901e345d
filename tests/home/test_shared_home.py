"""A home that is shared with a group: the group reads what is recorded, and nothing else."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

from home.journals import append, lines, new_trial, record, report, started
from interfaces.cli.commands import run_cli
from parts import needs
from users import ADA, BOB, EVE, LAB, of_user, place, run_as  # noqa: F401

from core_sdk._ground.alive import AliveLock
from core_sdk._home import Home
from core_sdk._home.folders import sharing

_TRAINING = """
from core_sdk import core, media

with core.init(name="digits") as context:
    context.train.report_training_metrics(1, {"loss": 1.0, "picture": media.Text("x")})
    context.train.get_tensorboard_path()
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        (path / "part").mkdir()
        (path / "part" / "weights").write_text("7")
        (path / "part").chmod(0o777)
"""

_READ_ALL = """
import json, os
read, refused = [], []
for path in {paths}:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read()
        read.append(path)
    except PermissionError:
        refused.append(path)
    try:
        open(os.path.join(path, "new") if os.path.isdir(path) else path, "ab").close()
        read.append("changed " + path)
    except PermissionError:
        pass
open({result}, "w").write(json.dumps([read, refused]))
"""

_DOWNLOAD = """
(stored,) = Tracker(homes="{homes}").list_checkpoints()
stored.download("{target}")
"""


def read_as(uid: int, result: Path, *tops: Path) -> tuple[list[str], list[str]]:
    """Returns what in these trees a user can read, or "changed NAME" what he can change, and what is refused."""
    result.touch()
    result.chmod(0o666)
    paths = [str(path) for top in tops for path in (top, *top.rglob("*"))]
    run_as(uid, result.parent / "none", program=_READ_ALL.format(paths=paths, result=repr(str(result))))
    read, refused = json.loads(result.read_text())
    return read, refused


def train(home: Home, directory: Path) -> None:
    """Trains as root, whose files are given to the owner of the home. The umask lets everybody change new files."""
    (directory / "train.py").write_text(_TRAINING)
    before = os.umask(0)
    done = run_cli(directory, "run", "--", sys.executable, "train.py", CORE_SDK_HOME=str(home.root))
    os.umask(before)
    assert done.status == 0, done.errors


def home_of(uid: int, directory: Path) -> Home:
    """Makes the home of a user."""
    home = Home.create(of_user(directory, uid) / "core-sdk")
    for path in [home.root, *home.root.rglob("*")]:
        os.chown(path, uid, uid)
    return home


@needs("other users")
def test_a_group_reads_what_was_and_what_will_be_recorded(place: Path) -> None:  # noqa: F811
    """After `core-sdk home share`, the group reads all records, and can change none; nobody else can read."""
    home = home_of(ADA, place / "ada")
    train(home, place)
    (home.root / "messages").mkdir(0o700)
    (home.root / "messages" / "target").write_text("a secret")
    assert sharing.share(home, LAB) == 0
    train(home, place)

    tops = [home.runs, home.experiments, home.checkpoints, home.code, home.record]
    for uid in (ADA, BOB):
        read, refused = read_as(uid, place / f"{uid}", *tops)
        assert refused == []
        assert str(home.runs / "2" / "1.journal") in read
        assert any(name.endswith("part/weights") for name in read)
    assert [name for name in read if name.startswith("changed ")] == []
    private = [path for path in home.root.iterdir() if path not in tops]
    assert {"messages", "reserve", "identity"} <= {path.name for path in private}
    assert read_as(BOB, place / "private", *private)[0] == []
    assert read_as(EVE, place / "eve", *tops, *private)[0] == []


@needs("other users")
def test_a_home_is_private_again(place: Path) -> None:  # noqa: F811
    """After `core-sdk home share --off`, the group reads nothing, also of what is recorded later."""
    home = home_of(ADA, place / "ada")
    sharing.share(home, LAB)
    train(home, place)

    assert sharing.unshare(home) == 0

    train(home, place)
    assert read_as(BOB, place / "bob", home.root)[0] == []
    for path in [home.root, home.runs, home.runs / "2", home.runs / "2" / "1.journal"]:
        assert path.stat().st_mode & 0o7077 == 0


@needs("other users")
def test_the_command_names_the_group_and_what_is_closed(place: Path) -> None:  # noqa: F811
    """`core-sdk home share` says who can read, refuses a group that there is not, and names a closed directory."""
    home = of_user(place / "ada", ADA) / "core-sdk"
    home.parent.chmod(0o700)

    results = run_as(
        ADA,
        home,
        ["home", "share", "--group", "no such group"],
        ["home", "share", "--group", "root"],
        ["home", "share", "--off"],
    )

    assert [status for status, _, _ in results] == [2, 2, 0]
    assert "there is no group" in results[0][2]
    assert "are you a member of root?" in results[1][2]
    assert results[2][1] == f"{home} is private\n"


def test_a_setgid_directory_alone_shares_nothing(tmp_path: Path) -> None:
    """A home in a directory of a lab, whose mode new directories inherit, stays private."""
    root = tmp_path / "home"
    root.mkdir()
    root.chmod(0o2755)

    home = Home.create(root)
    record(new_trial(home), report(1, loss=0.5))

    assert [path for path in root.rglob("*") if path.name != "1.journal" and path.stat().st_mode & 0o77] == []


def test_what_is_shared_stays_so_whatever_the_umask(tmp_path: Path) -> None:
    """Folders and files of new trials have the modes that their group needs, under a umask that takes all away."""
    home = Home.create(tmp_path / "home")
    sharing.share(home, os.getegid())

    before = os.umask(0o777 & ~0o700)
    folder = new_trial(home)
    os.umask(before)

    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o3750
    assert stat.S_IMODE(folder.record_path.stat().st_mode) == 0o640
    assert stat.S_IMODE((home.root / "reserve").stat().st_mode) == 0o600
    assert sharing.closed_above(home) is not None


@needs("other users")
def test_a_colleague_reads_and_follows_a_shared_home(place: Path) -> None:  # noqa: F811
    """A user of the group lists the trials of a shared home while one runs, and leaves no trace there."""
    ada, eve = home_of(ADA, place / "ada"), home_of(EVE, place / "eve")
    sharing.share(ada, LAB)
    train(ada, place)
    train(eve, place)
    running = new_trial(ada)
    append(running, 1, lines(started(running), report(1, loss=0.5)))
    lock = AliveLock(running.alive_path(1))
    running.journal_path(1).chmod(0o640)
    for path in (running.path, *running.path.iterdir()):
        os.chown(path, ADA, LAB)
    before = {path: path.lstat() for path in ada.root.rglob("*")}
    of_user(place / "bob", BOB)

    commands = [
        ["trial", "list", "--homes", f"{place}/*/core-sdk", "--fields", "trial_id,state,owner,home,latest_checkpoint"],
        ["trial", "list", "--homes", f"{place}/*/core-sdk", "--where", f"owner='{ADA}' and state=ACTIVE", "-q"],
        ["trial", "metrics", "1", "--homes", f"{place}/*/core-sdk"],
        ["trial", "logs", "1", "--homes", f"{place}/*/core-sdk"],
        ["trial", "describe", "2", "--homes", f"{place}/*/core-sdk"],
    ]
    download = _DOWNLOAD.format(homes=f"{place}/*/core-sdk", target=place / "bob" / "weights")
    results = run_as(BOB, place / "bob" / "core-sdk", *commands, program=download)
    lock.release()

    assert [(status, errors) for status, _, errors in results] == [(0, "")] * len(commands)
    listed = json.loads(results[0][1])
    assert [(row["state"], row["owner"], row["home"]) for row in listed] == [
        ("COMPLETED", str(ADA), str(ada.root)),
        ("ACTIVE", str(ADA), str(ada.root)),
    ]
    assert listed[0]["latest_checkpoint"] is not None
    assert (place / "bob" / "weights" / "part" / "weights").read_text() == "7"
    assert results[1][1] == "2\n"
    for path, state in before.items():
        now = path.lstat()
        assert (now.st_mtime_ns, now.st_ctime_ns, now.st_size) == (state.st_mtime_ns, state.st_ctime_ns, state.st_size)
    assert set(ada.root.rglob("*")) == before.keys()
    assert {path.lstat().st_uid for path in (place / "bob").rglob("*")} == {BOB}


@needs("other users")
def test_a_colleague_changes_his_own_trials_only(place: Path) -> None:  # noqa: F811
    """Files that a careless owner lets the group write are safe from verbs; the colleague's own trial is changed."""
    ada, bob = home_of(ADA, place / "ada"), home_of(BOB, place / "bob")
    train(ada, place)
    train(bob, place)
    for path in (ada.root, *ada.root.rglob("*")):
        os.chown(path, ADA, LAB)
        path.chmod(0o770 if path.is_dir() else 0o660)
    (checkpoint,) = ada.checkpoints.glob("*-*-*-*-*")
    before = {path: path.lstat() for path in ada.root.rglob("*")}
    homes = ["--homes", f"{place}/*/core-sdk"]
    commands = [
        ["trial", "list", "-q", *homes],
        ["trial", "label", "1", "mine", *homes],
        ["trial", "archive", "1", *homes],
        ["trial", "delete", "1", "--yes", *homes],
        ["experiment", "set", "name", "1", "mine", *homes],
        ["checkpoint", "delete", checkpoint.name, "--yes", *homes],
        ["trial", "label", "2", "mine", *homes],
    ]

    listed, *refused, done = run_as(BOB, bob.root, *commands)

    assert listed[1] == "1\n2\n"
    for status, _, errors in refused:
        assert status == 1
        assert f"lies in the home {ada.root}, which is {ADA}'s: only {ADA} can change it" in errors
    assert done == (0, "labels of trial 2: mine\n", "")
    assert set(ada.root.rglob("*")) == before.keys()
    for path, state in before.items():
        now = path.lstat()
        assert (now.st_mtime_ns, now.st_ctime_ns, now.st_size) == (state.st_mtime_ns, state.st_ctime_ns, state.st_size)
