"""A script that nobody supervises says which trial it is and how it has ended, and nothing is said twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from core.rank_processes import Ranks

from core_sdk._home import Home

SCRIPT = """
import sys
from core_sdk import core

with core.init(trial_name="mine", job_id="digits" if "job" in sys.argv else None) as context:
    print("trains")
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, storage_id):
        (path / "file").touch()
    if "fail" in sys.argv:
        raise ValueError("no")
"""


def errors_of(directory: Path, *command: str, **variables: str) -> list[str]:
    (directory / "train.py").write_text(SCRIPT)
    ended = subprocess.run(command, cwd=directory, env=os.environ | variables, capture_output=True, text=True)
    assert ended.stdout == "trains\n"
    return [line for line in ended.stderr.splitlines() if line.startswith("core-sdk: ")]


def test_a_script_says_which_trial_it_is_and_what_to_type_next(home: Home, tmp_path: Path) -> None:
    """A script names its trial on stderr when it begins and when it ends, also in a pipe and on a restart of a job."""
    first = errors_of(tmp_path, sys.executable, "train.py", "job", "fail")
    second = errors_of(tmp_path, sys.executable, "train.py", "job")

    assert first == [
        f"core-sdk: trial 1 (mine), recorded in {home.root}; `core-sdk trial describe 1` shows it",
        "core-sdk: trial 1 failed (ValueError: no): `core-sdk trial resume 1` goes on with it",
    ]
    assert second == [
        f"core-sdk: trial 1 (mine), attempt 2, from step 3, recorded in {home.root}; "
        "`core-sdk trial describe 1` shows it",
        "core-sdk: trial 1 completed: `core-sdk trial metrics 1 --plot` draws what it has reported",
    ]


def test_nothing_is_said_twice_or_by_a_script_that_is_to_be_quiet(home: Home, tmp_path: Path) -> None:
    """Under `core-sdk run` only the command speaks, and CORE_SDK_QUIET silences a script."""
    quiet = errors_of(tmp_path, sys.executable, "train.py", CORE_SDK_QUIET="1")
    run = errors_of(tmp_path, sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, "train.py")

    assert quiet == []
    assert run == [
        "core-sdk: trial 2, attempt 1: `core-sdk trial describe 2` shows it, `trial pause` stops it",
        "core-sdk: trial 2 completed",
    ]


def test_rank_0_speaks_for_the_trial(ranks: Ranks, home: Home) -> None:
    """Only rank 0 announces the trial; the other ranks are silent."""
    chief, other = ranks.run("with core.init(distributed=distributed): pass")

    assert chief.errors.count("core-sdk: trial 1") == 2
    assert "core-sdk: trial" not in other.errors
