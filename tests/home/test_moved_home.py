"""A home may be moved and copied: a moved one keeps its checkpoints, and a copy leaves its original's alone."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from interfaces.cli.commands import run_cli
from interfaces.cli.recorded import new_attempt, new_trial, store
from parts import needs
from promises import promise
from saving import checkpoint_ids

from core_sdk._execution.steering import checkpoints, trials
from core_sdk._ground.records import AttemptStarted, CheckpointBegun, CheckpointStored, CommandRecord
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.deletion.collection import Request, collect
from core_sdk._home.folders import Identity
from core_sdk._home.history import read_history
from core_sdk._home.journal import encode_line, read_records
from core_sdk._home.moving.relocation import adopt
from core_sdk._home.storage import DirectoryStorage
from core_sdk._home.storages import storage_name, storage_url
from core_sdk.errors import CheckpointProtectedError

LATEST = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}

TRAIN = """
import sys
from core_sdk import core

with core.init(name="moving", checkpoint_storage=sys.argv[1] if len(sys.argv) > 1 else None) as context:
    for steps in (context.info.trial.steps_completed + 1, context.info.trial.steps_completed + 2):
        with context.checkpoint.store_path({"steps_completed": steps}) as (path, storage_id):
            (path / "weights").write_text(str(steps))
sys.exit(3)
"""


@pytest.fixture
def original(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "original")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A storage outside of all homes."""
    return tmp_path / "shared"


def train(home: Home, storage: Path | None = None) -> TrialFolder:
    """Runs a script that stores two checkpoints and returns its trial."""
    script = home.root.with_name("train.py")
    script.write_text(TRAIN)
    arguments = [] if storage is None else [str(storage)]
    command = ["run", "--", sys.executable, str(script), *arguments]
    done = run_cli(home.root.parent, *command, CORE_SDK_HOME=str(home.root))
    assert done.status == 3, done.errors
    return home.folder(max(home.trial_ids()))


def copy(home: Home) -> Home:
    target = home.root.with_name("copy")
    subprocess.run(["cp", "-a", str(home.root), str(target)], check=True)
    return Home(target)


def move(home: Home) -> Home:
    return Home(home.root.rename(home.root.with_name("moved")))


def unpack(home: Home) -> Home:
    """Moves the home by packing and unpacking an archive."""
    target = home.root.with_name("unpacked")
    target.mkdir()
    archive = subprocess.run(["tar", "-C", str(home.root), "-c", "."], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-C", str(target), "-x"], input=archive, check=True)
    shutil.rmtree(home.root)
    return Home(target)


def listed(home: Home) -> list[str]:
    with open_view(home) as view:
        return [row.storage_id for row in view.checkpoints() if row.state != "DELETED"]


def collected(home: Home, *, with_inherited: bool = False) -> list[str]:
    return [
        verdict.storage_id for verdict in collect(home, Request(policy=LATEST, with_inherited=with_inherited)).deleted
    ]


def test_records_name_a_storage_in_the_home_by_its_place_there(original: Home, shared: Path) -> None:
    """A storage inside the home is recorded by its path in the home, and others by their URL."""
    inside, outside = original.root / "my #1 files", DirectoryStorage(shared).url

    name = storage_name(original, DirectoryStorage(inside).url)

    assert storage_name(original, DirectoryStorage(original.checkpoints).url) == "home:checkpoints"
    assert storage_url(original, name, "x") == DirectoryStorage(inside).url
    assert storage_url(Home(original.root / "other"), name, "x") == (original.root / "other/my #1 files").as_uri()
    assert storage_url(original, "home:../elsewhere", "x") == "home:../elsewhere"
    assert storage_name(original, outside) == outside
    assert storage_name(original, "s3://bucket/prefix") == "s3://bucket/prefix"


@pytest.mark.parametrize("relocate", [move, unpack])
def test_a_moved_home_finds_and_deletes_its_own_checkpoints(original: Home, relocate: Callable[[Home], Home]) -> None:
    """A home that was moved or unpacked elsewhere resumes from and deletes its own checkpoints."""
    train(original)

    moved = relocate(original)

    _, older = listed(moved)
    resumed = run_cli(moved.root.parent, "trial", "resume", "1", CORE_SDK_HOME=str(moved.root))
    assert resumed.status == 3, resumed.errors
    assert older in collected(moved)
    assert [each.record.steps_completed for each in read_history(moved.folder(1)).checkpoints] == [4]
    assert not original.root.exists()


@promise("copies-do-no-harm")
def test_a_copy_deletes_only_its_own_files(original: Home) -> None:
    """Deletions in a copied home leave the original's files, even while a trial runs there."""
    training = new_attempt(new_trial(original))
    for storage_id, steps in (("a", 10), ("b", 20), ("c", 30)):
        store(training, storage_id, steps)

    copied = copy(original)
    deleted = collected(copied)
    checkpoints.delete(copied, "c")
    trials.delete(copied, 1)

    assert deleted == ["a", "b"]
    assert checkpoint_ids(DirectoryStorage(copied.checkpoints)) == []
    assert checkpoint_ids(DirectoryStorage(original.checkpoints)) == ["a", "b", "c"]
    assert listed(original) == ["c", "b", "a"]
    training.die()


def test_records_of_older_versions_are_understood_after_a_move(original: Home) -> None:
    """Records of older versions, which have the home's absolute path, work after a move."""
    training = new_attempt(new_trial(original))
    store(training, "a", 10)
    store(training, "b", 20)
    training.end()
    records = read_records(training.folder.journal_path(1))
    assert {each.storage for each in records if isinstance(each, CheckpointStored)} == {original.checkpoints.as_uri()}

    moved = move(original)

    assert listed(moved) == ["b", "a"]
    assert newest_good_checkpoint(moved.folder(1)).storage_id == "b"
    assert collected(moved) == ["a"]


def test_a_copy_without_the_files_deletes_nothing_of_the_original(original: Home) -> None:
    """A copy without checkpoint files deletes none of the original, though old records have its path."""
    training = new_attempt(new_trial(original))
    for storage_id, steps in (("a", 10), ("b", 20)):
        store(training, storage_id, steps)
    training.append(CheckpointBegun(time=1.0, storage_id="c", storage=original.checkpoints.as_uri()))
    training.die()
    copied = copy(original)
    shutil.rmtree(copied.checkpoints)
    store(training_in := new_attempt(original.folder(1)), "c", 30)
    training_in.end()

    assert collected(copied) == []
    with pytest.raises(CheckpointProtectedError, match="may belong to another home"):
        checkpoints.delete(copied, "a")
    trials.delete(copied, 1)

    assert checkpoint_ids(DirectoryStorage(original.checkpoints)) == ["a", "b", "c"]


def test_a_copy_deletes_nothing_outside_that_was_stored_before(original: Home, shared: Path) -> None:
    """A copy deletes only those outside checkpoints that it has stored itself."""
    train(original, shared)
    copied = copy(original)
    before = checkpoint_ids(DirectoryStorage(shared))

    resumed = run_cli(copied.root.parent, "trial", "resume", "1", CORE_SDK_HOME=str(copied.root))

    assert resumed.status == 3, resumed.errors
    of_copy = sorted({*checkpoint_ids(DirectoryStorage(shared))} - {*before})
    assert len(of_copy) == 2
    assert len(collected(copied)) == 1
    assert {*before} <= {*checkpoint_ids(DirectoryStorage(shared))}
    trials.delete(copied, 1)
    assert checkpoint_ids(DirectoryStorage(shared)) == before
    assert len(collected(original)) == 1


def test_a_script_in_a_copy_only_forgets_what_its_original_has_stored(original: Home, shared: Path) -> None:
    """In a copy, deleting the original's checkpoint removes only the copy's record."""
    train(original, shared)
    before = checkpoint_ids(DirectoryStorage(shared))
    copied = copy(original)
    code = f"""
from core_sdk import core
with core.init(checkpoint_storage={str(shared)!r}) as context:
    for storage_id in {before!r}:
        context.checkpoint.delete(storage_id)
"""

    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"CORE_SDK_HOME": str(copied.root)})

    assert checkpoint_ids(DirectoryStorage(shared)) == before
    assert sorted(listed(original)) == before
    assert listed(copied) == []


def test_what_was_stored_outside_is_deleted_again_once_somebody_says_that_the_original_is_gone(
    original: Home, shared: Path
) -> None:
    """`checkpoint gc --inherited`, in a home that came out of an archive; a renamed one is still the same home."""
    train(original, shared)

    restored = unpack(move(original))

    assert collected(restored) == []
    assert len(collected(restored, with_inherited=True)) == 1


def test_a_renamed_home_still_owns_what_it_has_stored_outside(original: Home, shared: Path) -> None:
    """A renamed home still deletes its checkpoints in an outside storage."""
    train(original, shared)

    assert len(collected(move(original))) == 1


def test_a_trial_in_a_copy_runs_in_its_own_copy_of_the_code(original: Home) -> None:
    """A trial in a copied home uses the copy's code and not the original's."""
    folder = new_trial(original)
    folder.code_path.mkdir()
    folder.write_command(
        CommandRecord(argv=[str(folder.code_path / "bin" / "train"), "x"], cwd=str(folder.code_path), environment={})
    )

    copied = copy(original).folder(1)
    command = copied.read_command()

    assert command is not None
    assert command.cwd == str(copied.code_path)
    assert command.argv == [str(copied.code_path / "bin" / "train"), "x"]


def test_a_copy_has_another_identity(original: Home) -> None:
    """A copied home gets an identity of its own, and a renamed home keeps its identity."""
    identity = original.identity()

    copied, moved = copy(original), move(original)

    assert moved.identity() == identity
    assert copied.identity() != identity


IN_A_CONTAINER = "unshare --mount --uts bash -c 'set -e; hostname elsewhere; {mount}; exec \"$@\"' -"
OVER_IT = "mount -t overlay overlay -o lowerdir={home},upperdir={aside}/upper,workdir={aside}/work {home}"
ON_DISK = "mkfs.ext4 -q {aside}/disk 8M; mount -o loop {aside}/disk {aside}/mount; cp -a {home} {aside}/mount/home"

PLACES = {
    "the same place": ("", "{home}", True),
    "renamed": ("mv {home} {aside}/home", "{aside}/home", True),
    "in a folder that was renamed": ("mv {above} {above}-moved", "{above}-moved/home", True),
    "copied": ("cp -a {home} {aside}/home", "{aside}/home", False),
    "restored from an archive": ("tar cf {aside}/x {home}; rm -r {home}; tar xf {aside}/x -C /", "{home}", False),
    "copied over itself": ("cp -a {home} {aside}/home; rm -r {home}; mv {aside}/home {home}", "{home}", False),
    "in a container, mounted": ("mount --bind {home} {aside}/mount", "{aside}/mount", True),
    "in a container, at the same path": ("true", "{home}", True),
    "in a container, changed by it": (OVER_IT, "{home}", False),
    "in a container, whose folder above was changed": (OVER_IT.replace("{home}", "{above}"), "{home}", False),
    "on another disk": (ON_DISK, "{aside}/mount/home", False),
}
"""What was done with a home, where it then is, and whether it is the same one."""

DELETE = """
import sys
from pathlib import Path
from core_sdk._execution.steering import trials
from core_sdk._home import Home
from core_sdk._home.deletion.collection import Request, collect

home = Home(Path(sys.argv[1]))
collect(home, Request(policy={"save_trial_best": 0, "save_trial_latest": 1}))
trials.delete(home, 1)
"""


def outside(home: Home, shared: Path) -> None:
    """Records a trial with two checkpoints in the home and two outside."""
    training = new_attempt(new_trial(home))
    for steps, storage_id in enumerate(("a", "b", "c", "d"), start=1):
        store(training, storage_id, steps, shared if storage_id in "ab" else None)
    training.end()


def at_place(place: str, home: Home, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with the home at one of the `PLACES`; what is mounted is seen by this command only."""
    done, path, _ = PLACES[place]
    aside = home.root.parent.with_name("aside")
    for name in ("upper", "work", "mount"):
        (aside / name).mkdir(parents=True)
    where = {"home": home.root, "above": home.root.parent, "aside": aside}
    argv = [*command, path.format(**where)]
    if "container" in place or "disk" in place:
        argv = shlex.split(IN_A_CONTAINER.format(mount=done.format(**where))) + argv
    else:
        subprocess.run(["bash", "-ec", done.format(**where)], check=True, capture_output=True)
    return subprocess.run(argv, check=True, capture_output=True, text=True)


@promise("copies-do-no-harm")
@pytest.mark.parametrize(
    "place", [pytest.param(each, marks=needs("hosts")) if "tain" in each or "disk" in each else each for each in PLACES]
)
def test_a_home_deletes_outside_only_where_it_is_the_same_folder(tmp_path: Path, shared: Path, place: str) -> None:
    """Outside checkpoints are deleted only by the same folder, wherever a home may have been mounted."""
    home = Home.create(tmp_path / "above" / "home")
    outside(home, shared)

    at_place(place, home, sys.executable, "-c", DELETE)

    assert checkpoint_ids(DirectoryStorage(shared)) == ([] if PLACES[place][-1] else ["a", "b"])


def test_a_home_that_was_moved_owns_all_again_once_somebody_says_so(original: Home, shared: Path) -> None:
    """After adopt() a moved home owns its outside checkpoints, except those that were merged into it."""
    outside(original, shared)
    new_attempt(new_trial(original)).end()
    journal = original.folder(2).journal_path(1)
    other = original.identity().replace("-", "-0", 1)
    journal.write_bytes(encode_line(msgspec.structs.replace(next(iter(read_records(journal))), home=other)))
    moved = unpack(original)
    new_attempt(moved.folder(1)).end()

    assert adopt(moved)

    ownership = moved.ownership()
    started = [next(iter(read_records(moved.folder(1).journal_path(attempt)))) for attempt in (1, 2)]
    assert [isinstance(each, AttemptStarted) and ownership.covers(each.home) for each in started] == [True, True]
    assert not ownership.covers(other)
    assert not adopt(moved)
    assert not copy(moved).ownership().covers(moved.identity())
    trials.delete(moved, 1)
    assert checkpoint_ids(DirectoryStorage(shared)) == []


def test_a_home_that_is_declared_a_copy_leaves_alone_what_was_stored_before(original: Home, shared: Path) -> None:
    """A home with a newly drawn identity leaves earlier outside checkpoints alone."""
    outside(original, shared)

    original.draw_identity()

    trials.delete(original, 1)
    assert checkpoint_ids(DirectoryStorage(shared)) == ["a", "b"]
    assert not adopt(original)


def test_a_home_is_the_same_over_the_network_and_on_the_server() -> None:
    """An identity without a disk number, as on a network file system, matches the same folder."""
    here, over_network = Identity("name", "folder", "disk"), Identity("name", "folder", "")

    assert here.is_same(over_network) and over_network.is_same(here) and over_network.is_same(over_network)
    assert not here.is_same(Identity("name", "folder", "snapshot"))
    assert not here.is_same(Identity("name", "copy", ""))
    assert Identity.parse(str(over_network)) == over_network


@needs("hosts")
def test_what_is_mounted_into_a_copy_is_outside(tmp_path: Path) -> None:
    """A directory that is mounted into a copy counts as outside of it."""
    home = Home.create(tmp_path / "above" / "home")
    outside(home, tmp_path / "shared")
    (tmp_path / "checkpoints").mkdir()
    keep = "mount --bind {home}/checkpoints {above}/../checkpoints; "
    PLACES["with a mount in a container"] = (
        keep + OVER_IT + "; mount --bind {above}/../checkpoints {home}/checkpoints",
        "{home}",
        False,
    )

    at_place("with a mount in a container", home, sys.executable, "-c", DELETE)

    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == ["c", "d"]


def test_checkpoints_behind_a_link_are_outside(original: Home, tmp_path: Path) -> None:
    """Checkpoints behind a symbolic link count as outside, since a copy shares them."""
    original.checkpoints.rmdir()
    (tmp_path / "big disk").mkdir()
    original.checkpoints.symlink_to(tmp_path / "big disk")
    train(original)

    copied = copy(original)

    assert collected(copied) == []
    assert len(listed(copied)) == 2
    assert len(collected(original)) == 1


def test_a_damaged_identity_stops_no_training_and_deletes_nothing_outside(original: Home, shared: Path) -> None:
    """With a damaged identity, trainings run and outside checkpoints are not deleted."""
    train(original, shared)
    path = original.root / "identity"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])

    train(original, shared)

    assert collected(original) == []
    assert len(checkpoint_ids(DirectoryStorage(shared))) == 4
