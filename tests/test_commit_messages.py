"""The hook that checks the message of a commit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[1] / ".ci" / "commit_message.py"


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[str], str]:
    """Runs the hook as git does, in a repository with one change of the package that is staged."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "core_sdk").mkdir()
    (tmp_path / "core_sdk" / "a.py").write_text("a = 1\n")
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)

    def run(message: str) -> str:
        (tmp_path / "message").write_text(message)
        done = subprocess.run(
            [sys.executable, str(HOOK), "message"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=60
        )
        assert done.returncode == bool(done.stderr)
        return done.stderr

    return run


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("Keep the newest report\n\nThe older one was obsolete.\n", ""),
        ("# a comment of git's\n\nKeep it\n\nIt was lost.\n# another\n", ""),
        ("Merge branch 'other'\n", ""),
        ("Keep the newest report\n", "its body does not say why"),
        ("Keep the newest report\nand more\n", "an empty line must follow the subject"),
        ("Keep the newest report.\n\nWhy.\n", "full stop"),
        ("K" * 73 + "\n\nWhy.\n", "the subject has 73 characters"),
        ("# only a comment\n", "the message is empty"),
    ],
)
def test_a_message_has_a_short_subject_and_says_why(judge: Callable[[str], str], message: str, problem: str) -> None:
    """Messages that break a rule are refused with the rule, and others are taken in silence."""
    said = judge(message)

    assert problem in said
    assert bool(said) == bool(problem)


def test_what_changes_no_code_of_the_packages_needs_no_body(judge: Callable[[str], str], tmp_path: Path) -> None:
    """A commit of documents, or one that only moves files, may have a subject alone."""
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Begin"], cwd=tmp_path, check=True
    )

    subprocess.run(["git", "mv", "core_sdk/a.py", "core_sdk/b.py"], cwd=tmp_path, check=True)

    assert judge("Move a module\n") == ""
