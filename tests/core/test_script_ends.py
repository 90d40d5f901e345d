"""However a script ends, and however it holds its Context, the trial's state and the exit status are true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from core.script_ends import ALL, FAILED_SAVE, HOLDS, SAVE, STOP

from core_sdk._home import Home
from core_sdk._home.index import Index

# Runs each script of its input in a process of its own, forked: as Python runs it, but without the time for imports.
RUNNER = """
import contextlib, json, os, signal, sys
import core_sdk
from core_sdk import core

statuses = []
for script in json.load(open(sys.argv[1])):
    child = os.fork()
    if child == 0:
        break
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    json.dump(statuses, open(sys.argv[1], "w"))
    os._exit(0)
exec(script)
"""
ERROR, COMPLETED, CANCELED, PAUSED = "ERROR", "COMPLETED", "CANCELED", "PAUSED"
# What ends the script, the ways to hold the Context, and the end: the state and the status.
TABLE = [
    ("pass", ALL, COMPLETED, 0),
    ("raise ValueError('bad')", ALL[:-1], ERROR, 1),
    # Python closes the generator before anybody can know of the error.
    ("raise ValueError('bad')", ALL[-1:], COMPLETED, 1),
    ("sys.exit()", ALL, COMPLETED, 0),
    ("sys.exit(0)", ALL, COMPLETED, 0),
    ("sys.exit(3)", ALL, ERROR, 3),
    ("sys.exit('bad')", ALL, ERROR, 1),
    ("sys.exit(75)", ALL, ERROR, 75),
    ("exit(3)", ALL, ERROR, 3),
    ("raise SystemExit(3)", ("with", "stack", "finally"), ERROR, 3),
    ("raise KeyboardInterrupt", ALL[:-1], CANCELED, -2),
    ("raise core_sdk.InvalidHP('too large')", ("with", "stack"), COMPLETED, 0),
    ("raise core_sdk.InvalidHP('too large')", ("start", "finally", "function"), COMPLETED, 1),
    ("os._exit(3)", ALL, ERROR, 3),
    ("os.kill(os.getpid(), signal.SIGTERM)", ALL, ERROR, -15),
    (STOP + "pass", ALL, PAUSED, 0),
    (STOP + "sys.exit(0)", ALL, PAUSED, 0),
    (STOP + "sys.exit(75)", ALL, PAUSED, 75),
    (STOP + "sys.exit(3)", ALL, ERROR, 3),
    (STOP + "raise ValueError('bad')", ALL[:-1], ERROR, 1),
    (STOP + FAILED_SAVE, ALL[:-1], ERROR, 1),
    (SAVE + FAILED_SAVE, ALL[:-1], ERROR, 1),
    (SAVE + STOP + FAILED_SAVE, ALL[:-1], ERROR, 74),
]


def ends(home: Home, directory: Path, scripts: list[str], **variables: str) -> list[tuple[str, int]]:
    """Returns the state of the trial of each script, and the exit status of its process."""
    file = directory / "scripts.json"
    file.write_text(json.dumps(scripts))
    subprocess.run([sys.executable, "-c", RUNNER, str(file)], env=os.environ | variables, check=True)
    with Index(home) as index:
        index.refresh()
        states = [index.trial(number).state for number in range(1, len(scripts) + 1)]
    return list(zip(states, json.loads(file.read_text()), strict=True))


@pytest.mark.parametrize("hold", HOLDS)
def test_the_state_and_the_status_tell_how_a_script_has_ended(hold: str, home: Home, tmp_path: Path) -> None:
    """Under plain `python`, the trial's state and the exit status fit the way in which the script ended."""
    rows = [(way, (state, status)) for way, holds, state, status in TABLE if hold in holds]

    found = ends(home, tmp_path, [HOLDS[hold].replace("END", way) for way, _ in rows])

    assert dict(zip([way for way, _ in rows], found, strict=True)) == dict(rows)


@pytest.mark.parametrize("hold", HOLDS)
def test_in_a_job_the_status_asks_for_another_start(hold: str, home: Home, tmp_path: Path) -> None:
    """In a job, a stop gives status 75, unless the script ends with an error or a status of its own."""
    after_a_stop = ERROR if hold == "start" else PAUSED  # without an end of the Context, there is no "after"
    rows = {
        (STOP + "pass", ""): (PAUSED, 75),
        (STOP + "sys.exit(0)", ""): (PAUSED, 75),
        (STOP + "sys.exit(3)", ""): (ERROR, 3),
        (STOP + "pass", "sys.exit()"): (PAUSED, 75),
        (STOP + "pass", "sys.exit(3)"): (after_a_stop, 3),
        (STOP + "pass", "raise ValueError('bad')"): (after_a_stop, 1),
        (STOP + "pass", "os._exit(0)"): (ERROR if hold == "start" else PAUSED, 0),
        ("pass", ""): (COMPLETED, 0),
        ("pass", "sys.exit()"): (COMPLETED, 0),
    }

    scripts = [f"{HOLDS[hold].replace('END', way)}\n{after}" for way, after in rows]
    found = ends(home, tmp_path, scripts, SLURM_JOB_ID="7")

    assert dict(zip(rows, found, strict=True)) == rows


@pytest.mark.parametrize("name", ["CORE_SDK_JOB_ID='a'", "job_id='a'", "second trial"])
def test_every_kind_of_job_is_one(name: str, home: Home, tmp_path: Path) -> None:
    """A job may be named by the environment, the script or an earlier trial of the same process."""
    script = HOLDS["with"].replace("END", STOP + "pass")
    if name == "second trial":
        script = HOLDS["with"].replace("END", "pass") + script
    elif name.startswith("job_id"):
        script = script.replace("init()", f"init({name})")

    variables = {"CORE_SDK_JOB_ID": "a"} if name.startswith("CORE") else {"SLURM_JOB_ID": "7"}
    ((_, status),) = ends(home, tmp_path, [script], **variables)

    assert status == 75


def test_a_status_of_75_costs_nothing_that_python_does_at_its_exit(home: Home, tmp_path: Path) -> None:
    """With status 75 Python still joins threads, runs exit functions, removes temporary files and flushes files."""
    script = """
import atexit, signal, sys, tempfile, threading, time
atexit.register(lambda: print("called early"))
from core_sdk import core
sys.excepthook = lambda *error: print(error)
directory = tempfile.TemporaryDirectory(dir=sys.argv[1])
log = open(sys.argv[1] + "/log", "w")
def count():
    time.sleep(0.2)
    log.write("counted")
threading.Thread(target=count).start()
def train():
    with core.init() as context:
        context.preempt.should_preempt()
        signal.raise_signal(signal.SIGTERM)
        while not context.preempt.should_preempt(): pass
    atexit.register(lambda: print("called late"))
    print("after", end=" ")
    return 0
sys.exit(train())
"""
    files = tmp_path / "files"
    files.mkdir()

    ended = subprocess.run(
        [sys.executable, "-c", script, str(files)],
        capture_output=True,
        text=True,
        env=os.environ | {"CORE_SDK_JOB_ID": "a", "CORE_SDK_QUIET": "1"},
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (75, "after called late\ncalled early\n", "")
    assert [(path.name, path.read_text()) for path in files.iterdir()] == [("log", "counted")]
