"""The code of a try is what lay in the directory at that moment, and taking it changes nothing there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core_sdk._execution.experiments.code import unpack
from core_sdk._execution.studies._restoring import move_branch, restore
from core_sdk._execution.studies._snapshot import CodeSnapshot, commit, in_copy, take_snapshot
from core_sdk._ground.records import CodeRecord
from core_sdk._home import Home
from core_sdk.errors import CodeDirectoryError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a script, data that git ignores, a staged and an unstaged change, and a new source file."""
    root = tmp_path / "work"
    (root / "data").mkdir(parents=True)
    (root / "data" / "x.bin").write_bytes(b"\0" * 100)
    (root / "sub").mkdir()
    (root / ".gitignore").write_text("data/\n*.log\n")
    for name in ("train.py", "staged.py", "deleted.py", "sub/part.py"):
        (root / name).write_text("value = 1\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    (root / "staged.py").write_text("value = 2\n")
    git(root, "add", "staged.py")
    (root / "train.py").write_text("value = 3\n")
    (root / "new.py").write_text("value = 4\n")
    (root / "new.bin").write_bytes(b"\0")
    (root / "run.log").write_text("")
    (root / "deleted.py").unlink()
    return root


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout


def copied(home: Home, snapshot: CodeSnapshot, directory: Path) -> dict[str, str]:
    unpack(home, snapshot.packed.sha256, directory)
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_the_code_in_git_is_what_lies_in_the_work_tree(home: Home, repository: Path, tmp_path: Path) -> None:
    """Changes count whether they are staged or not, new sources count, and what git ignores does not."""
    found = copied(home, take_snapshot(home, repository), tmp_path / "copy")

    assert found == {
        ".gitignore": "data/\n*.log\n",
        "new.py": "value = 4\n",
        "staged.py": "value = 2\n",
        "sub/part.py": "value = 1\n",
        "train.py": "value = 3\n",
    }


def test_a_commit_has_the_code_and_touches_nothing(home: Home, repository: Path, tmp_path: Path) -> None:
    """The commit is at a ref of its own; index, work tree, branches and HEAD are as they were."""
    before = git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD"), git(repository, "branch")
    snapshot = take_snapshot(home, repository)
    unpack(home, snapshot.packed.sha256, tmp_path / "copy")

    made = commit(snapshot, tmp_path / "copy", "refs/core-sdk/digits/7", "wider", "ann")

    after = git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD"), git(repository, "branch")
    assert after == before
    assert git(repository, "rev-parse", "refs/core-sdk/digits/7").strip() == made
    assert git(repository, "log", "-1", "--format=%an %s", made).strip() == "ann wider"
    assert git(repository, "show", f"{made}:train.py") == "value = 3\n"
    assert set(git(repository, "ls-tree", "-r", "--name-only", made).split()) == set(snapshot.names)


def test_what_is_no_code_is_linked(home: Home, repository: Path, tmp_path: Path) -> None:
    """A script finds its data by a relative path in the copy."""
    snapshot = take_snapshot(home, repository)
    unpack(home, snapshot.packed.sha256, tmp_path / "copy")

    linked = snapshot.link_others(tmp_path / "copy", home.root)

    assert linked == ["data", "new.bin", "run.log"]
    assert (tmp_path / "copy" / "data" / "x.bin").stat().st_size == 100


def test_a_directory_of_a_repository_brings_all_of_it(home: Home, repository: Path, tmp_path: Path) -> None:
    """A script below the root may import what lies beside its directory."""
    snapshot = take_snapshot(home, repository / "sub")

    assert (snapshot.directory, snapshot.root) == ("sub", repository)
    assert "train.py" in copied(home, snapshot, tmp_path / "copy")


def test_without_git_the_code_is_the_source_files(home: Home, tmp_path: Path) -> None:
    """Data and outputs are linked, and the home is no part of it."""
    root = home.root.parent / "plain"
    root.mkdir()
    (root / "train.py").write_text("")
    (root / "weights.pt").write_bytes(b"\0")

    snapshot = take_snapshot(home, root)

    assert snapshot.names == {"train.py"}
    assert commit(snapshot, root, "refs/core-sdk/x/1", "", "") == ""


def test_a_directory_without_sources_is_refused(home: Home, tmp_path: Path) -> None:
    """Nothing is tried where nothing is."""
    (tmp_path / "empty").mkdir()

    with pytest.raises(CodeDirectoryError, match="holds no source file"):
        take_snapshot(home, tmp_path / "empty")


def test_absolute_paths_lead_into_the_copy(repository: Path, tmp_path: Path) -> None:
    """A command names the copy of a file of the code, and not the file that somebody edits meanwhile."""
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "train.py").write_text("")
    (copy / "data").symlink_to(repository / "data")

    told = in_copy(["python", f"{repository}/train.py", f"{repository}/data/x.bin", "train.py"], repository, copy)

    assert told == ["python", f"{copy}/train.py", f"{repository}/data/x.bin", "train.py"]


def test_code_is_restored_only_over_code_that_is_kept(home: Home, repository: Path) -> None:
    """Files of the other code are removed, those that lack come back, and work that no try has is refused."""
    first = take_snapshot(home, repository).packed.sha256
    (repository / "train.py").write_text("value = 5\n")
    (repository / "more.py").write_text("")
    second = take_snapshot(home, repository).packed.sha256
    (repository / "train.py").write_text("value = 6\n")

    with pytest.raises(CodeDirectoryError, match="no try has kept"):
        restore(home, repository, CodeRecord(sha256=first), [first, second])
    (repository / "train.py").write_text("value = 5\n")
    changed = restore(home, repository, CodeRecord(sha256=first), [first, second])

    assert changed == ["more.py", "train.py"]
    assert take_snapshot(home, repository).packed.sha256 == first


def test_a_branch_only_moves_forwards(home: Home, repository: Path, tmp_path: Path) -> None:
    """A branch that is checked out, or has other commits, stays where it is."""
    snapshot = take_snapshot(home, repository)
    unpack(home, snapshot.packed.sha256, tmp_path / "copy")
    made = commit(snapshot, tmp_path / "copy", "refs/core-sdk/digits/7", "wider", "ann")
    other = commit(snapshot, tmp_path / "copy", "refs/core-sdk/digits/8", "deeper", "ann")

    move_branch(repository, "best", made)

    assert git(repository, "rev-parse", "best").strip() == made
    with pytest.raises(CodeDirectoryError, match="with commits that are not in"):
        move_branch(repository, "best", other)
    with pytest.raises(CodeDirectoryError, match="checked out"):
        move_branch(repository, "main", made)
