"""What an attempt records of its code and its machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Script

from core_sdk import core
from core_sdk._ground.records import EnvironmentRecord
from core_sdk._ground.version import __version__
from core_sdk._home import Home, open_view
from core_sdk.core._recorders import _environment
from core_sdk.core._recorders._environment import find_environment, start_git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "known.py").write_text("1\n")
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", "known.py")
    _git(tmp_path, "commit", "--quiet", "--message", "First")
    return tmp_path


def test_a_clean_repository_gives_its_commit(repository: Path) -> None:
    """Files that git does not track do not make a repository dirty."""
    (repository / "unknown.txt").write_text("x")

    found = find_environment(start_git(repository))

    assert found.git_commit == _git(repository, "rev-parse", "HEAD")
    assert found.git_is_dirty is False


def test_a_change_that_is_not_committed_makes_it_dirty(repository: Path) -> None:
    """A change that is not committed marks the repository as dirty."""
    (repository / "known.py").write_text("2\n")

    assert find_environment(start_git(repository)).git_is_dirty is True


def test_outside_of_a_repository_nothing_is_said_of_git(tmp_path: Path) -> None:
    """Outside of a repository only the machine and the packages are recorded."""
    found = find_environment(start_git(tmp_path))

    assert (found.git_commit, found.git_is_dirty) == ("", None)
    assert found.packages["core-sdk"] == __version__
    assert found.num_cpus == os.cpu_count()
    assert found.memory_bytes > 0


def test_a_repository_of_another_user_says_why_nothing_is_known(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git's own reason is recorded."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")

    found = find_environment(start_git(repository))

    assert (found.git_commit, found.git_is_dirty) == ("", None)
    assert found.git_problem == f"detected dubious ownership in repository at '{repository}'"


def test_a_repository_without_a_commit_says_so(tmp_path: Path) -> None:
    """The first commit may come later."""
    _git(tmp_path, "init", "--quiet")

    assert find_environment(start_git(tmp_path)).git_problem == "the repository has no commit"


def test_a_short_script_in_a_slow_repository_records_the_commit(
    repository: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is recorded, and that git has not found all changes before the end of the script."""
    monitor = repository / "slow"
    monitor.write_text("#!/bin/sh\nsleep 60\n")
    monitor.chmod(0o700)
    _git(repository, "config", "core.fsmonitor", str(monitor))
    monkeypatch.setattr(_environment, "script_directory", lambda: repository)

    with core.init():
        pass

    with open_view(home) as view:
        found = view.trial(1).environment
    assert isinstance(found, EnvironmentRecord)
    assert (found.git_commit, found.git_is_dirty) == (_git(repository, "rev-parse", "HEAD"), None)
    assert found.git_problem == "git had not found all changes in time"


def test_a_script_records_its_environment(repository: Path, home: Home, start_script: Callable[..., Script]) -> None:
    """The environment is recorded even if the script ends at once."""
    start_script("from core_sdk import core\nwith core.init():\n    pass\n").wait()

    with open_view(home) as view:
        environment = view.trial(1).environment
    assert isinstance(environment, EnvironmentRecord)
    assert environment.git_commit == _git(repository, "rev-parse", "HEAD")


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()
