"""What is promised of reports and output, where no other test holds it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from parts import needs
from promises import promise

from core_sdk._ground.records import (
    Report,
)
from core_sdk._home import Home
from core_sdk._home.journal import JournalWriter, read_records

RunScript = Callable[..., tuple[int, str, str]]


def reports(home: Home, trial_id: int = 1, attempt: int = 1) -> list[Report]:
    records = read_records(home.trial(trial_id).journal_path(attempt))
    return [record for record in records if isinstance(record, Report)]


@promise("reports-do-not-wait")
@needs("strace")
def test_a_report_is_one_write(tmp_path: Path) -> None:
    """Between two reports the training thread makes no system call except one write."""
    source = """
import os
from core_sdk import client, core
with core.init() as context:
    for step in range(3):
        context.train.report_training_metrics(step, {"loss": 0.5})
    os.getppid()
    for step in range(3, 53):
        context.train.report_training_metrics(step, {"loss": 0.5})
    os.getppid()
"""
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-o", trace, sys.executable, "-c", source], check=True)

    # Without -f only the main thread is traced.
    between = trace.read_text().split("getppid()")[1].splitlines()[1:]
    # A line that begins with dashes is a signal: a child of the recorder of the environment has ended.
    calls = [call.split("(")[0] for call in between if call and not call.startswith("---")]
    assert [call for call in calls if call not in ("futex", "mmap", "munmap", "brk")] == ["write"] * 50


@promise("power-cut-costs-a-second")
def test_an_fsync_follows_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An fsync outside of the training thread follows a report within about a second."""
    fsynced = threading.Event()
    fsync = os.fsync

    def counting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        if threading.current_thread() is not threading.main_thread():
            fsynced.set()

    monkeypatch.setattr(os, "fsync", counting_fsync)
    journal = JournalWriter(tmp_path / "1.journal")
    begin = time.monotonic()
    journal.append(Report(1.0, "training", 1, {"loss": 0.5}))

    assert fsynced.wait(timeout=5)
    assert time.monotonic() - begin < 2.0
    journal.close()


@promise("descriptors-closed")
@pytest.mark.parametrize("last", [64, 1 << 12], ids=["the first", "all"])
def test_a_script_may_close_what_it_has_not_opened(home: Home, run_script: RunScript, last: int) -> None:
    """A script may close descriptors that it did not open, and neither its own files nor reports suffer."""
    source = """
import os, threading
from core_sdk import core
with core.init() as core_context:
    core_context.train.report_training_metrics(1, {"loss": 1.0})
    while any(thread.name == "core-sdk-environment" for thread in threading.enumerate()):
        pass
    os.closerange(3, LAST)
    own = [open(f"{os.environ['CORE_SDK_HOME']}/../own{number}", "wb") for number in range(40)]
    for step in range(2, 101):
        core_context.train.report_training_metrics(step, {"loss": 1.0})
    for file in own:
        file.close()
"""

    status, _, stderr = run_script(source.replace("LAST", str(last)))

    assert status == 0, stderr
    assert [each.steps_completed for each in reports(home)] == list(range(1, 101))
    assert [path.stat().st_size for path in home.root.parent.glob("own*")] == [0] * 40


@promise("output-never-fails")
def test_a_full_disk_does_not_reach_the_scripts_output(small_disk: Path, tmp_path: Path) -> None:
    """Output that a full disk cannot keep is dropped and counted, and the script ends successfully."""
    script = tmp_path / "talk.py"
    script.write_text(
        f"""
from pathlib import Path
hog = Path({str(small_disk / "hog")!r})
hog.write_bytes(b"x" * 700 * 1024)
for _ in range(1000):
    print("x" * 999)
hog.unlink()
print("the end")
"""
    )

    run = subprocess.run(
        [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"CORE_SDK_HOME": str(small_disk / "home")},
    )

    assert run.returncode == 0
    assert "bytes of output were dropped" in run.stdout
    assert run.stdout.endswith("the end\n")
