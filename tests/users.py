"""Other users of the machine, in processes that have become theirs. Only root can make them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ADA, BOB, EVE, LAB = 61001, 61002, 61003, 61100
"""Three people; the first two are in the group of the lab."""

# The interpreter's modules may be root's alone, so that all commands run once as root, in a home that is thrown away.
_CHILD = """
import contextlib, io, json, os, sys, tempfile
from core_sdk._interfaces.cli import main
from core_sdk.client import Tracker
import core_sdk._home.storage.directory

def run(words):
    sys.argv = ["core-sdk", *words]
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
    return [status, output.getvalue(), errors.getvalue()]

uid, groups, home, program, commands = json.loads(sys.argv[1])
with tempfile.TemporaryDirectory() as unused:
    os.environ["CORE_SDK_HOME"] = unused
    [run(words) for words in commands]
os.environ["CORE_SDK_HOME"] = home
os.setgroups(groups); os.setgid(uid); os.setuid(uid)
assert os.getuid() == uid and os.getgroups() == groups
if program:
    exec(program)
print(json.dumps([run(words) for words in commands]))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: other users; only root can be another user")
    directory = Path(tempfile.mkdtemp(prefix="core-sdk-users-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def of_user(directory: Path, uid: int) -> Path:
    """Returns a new directory that is this user's."""
    directory.mkdir()
    directory.chmod(0o755)
    os.chown(directory, uid, uid)
    return directory


def run_as(uid: int, home: Path, *commands: Sequence[str], program: str = "") -> list[tuple[int, str, str]]:
    """Runs a program and commands as a user. Returns the status, the output and the errors of each command."""
    asked = json.dumps([uid, [LAB] if uid in (ADA, BOB) else [], str(home), program, commands])
    done = subprocess.run([sys.executable, "-c", _CHILD, asked], stdout=subprocess.PIPE, text=True, check=True)
    return [(status, output, errors) for status, output, errors in json.loads(done.stdout.splitlines()[-1])]
