"""Checks the message of a commit: `python .ci/commit_message.py FILE`, which is the hook `commit-msg` of pre-commit.

A subject has at most 72 characters and no full stop. A line without text follows, and then a body, which a commit needs
that changes the code of the packages: it says why. Commits that only move files need none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_SUBJECT = 72
_PACKAGES = ("core_sdk/", "launchers/")
_BY_GIT = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ?")


def problems(message: str, changes_code: bool) -> list[str]:
    """Returns what is wrong with a message, a sentence each."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    if not lines:
        return ["the message is empty"]
    subject, *rest = lines
    if _BY_GIT.match(subject):
        return []
    found = []
    if len(subject) > MAX_SUBJECT:
        found.append(f"the subject has {len(subject)} characters, and may have {MAX_SUBJECT}: say the rest in the body")
    if subject.endswith("."):
        found.append("the subject ends with a full stop")
    if rest and rest[0]:
        found.append("an empty line must follow the subject")
    if changes_code and not any(rest):
        found.append("the commit changes code of the packages, and its body does not say why")
    return found


def changes_code() -> bool:
    """Returns whether the staged files of the packages differ in more than their places."""
    command = ["git", "diff", "--cached", "--name-status", "--find-renames=100%"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return any(name.startswith(_PACKAGES) for line in lines if line[:1] != "R" for name in line.split("\t")[1:])


def main() -> int:
    """Prints the problems of the message in the file that is named. Returns 1 if there are any."""
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8").partition("# -- >8 --")[0], changes_code())
    for each in found:
        print(f"commit message: {each}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
