"""Who waits for another process that has the index says so, and does not wait for one that is suspended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from home.journals import append, lines, new_trial, record, report
from interfaces.cli.commands import run_cli
from processes import Script, wait_for

from core_sdk._home import Home
from core_sdk._home.index import Index

_INDEXES = """
    import sys, time
    from pathlib import Path
    from core_sdk._home import Home
    from core_sdk._home.index import Index

    def hold(reading):
        print("holds", flush=True)
        while not Path(sys.argv[2]).exists():
            time.sleep(0.01)

    with Index(Home.open(Path(sys.argv[1])), hold) as index:
        index.refresh()
"""

_READS = """
    import sqlite3, sys, time
    from pathlib import Path

    connection = sqlite3.connect(sys.argv[1] + "/tracker.db", isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM trial").fetchone()
    print("holds", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
"""


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A file whose presence tells the holder to end."""
    return tmp_path / "ended"


@pytest.mark.parametrize("holder", [_INDEXES, _READS], ids=["indexes", "reads"])
def test_a_suspended_process_holds_nobody_up(
    home: Home, tmp_path: Path, ended: Path, start_script: Callable[..., Script], holder: str
) -> None:
    """If a suspended process holds the index, others read the journals and name that process."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    if holder == _READS:
        Index.rebuild(home)
        append(folder, 1, lines(report(2, loss=0.25)))
    script = start_script(holder, home.root, ended)
    script.read_until("holds")
    pid = script.process.pid
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)

    began = time.monotonic()
    told = run_cli(tmp_path, "trial", "metrics", "1", "--csv")
    rebuilt = run_cli(tmp_path, "index", "rebuild") if holder == _INDEXES else None
    waited_s = time.monotonic() - began
    os.kill(pid, signal.SIGCONT)
    ended.touch()

    assert told.status == 0, told.errors
    assert "0.5" in told.output
    assert f"process {pid} (`" in told.errors
    assert "which is suspended, holds a lock of it); it is kept in memory" in told.errors
    assert rebuilt is None or (rebuilt.status != 0 and f"process {pid} (`" in rebuilt.errors)
    assert waited_s < 60  # SQLite's own patience
    assert script.wait()[0] == 0
    assert run_cli(tmp_path, "trial", "metrics", "1", "--csv").errors == ""


def test_a_process_that_works_is_named_and_waited_for(
    home: Home, ended: Path, start_script: Callable[..., Script], caplog: pytest.LogCaptureFixture
) -> None:
    """A process that is indexing is named and waited for, and its work is not repeated."""
    record(new_trial(home), report(1, loss=0.5))
    script = start_script(_INDEXES, home.root, ended)
    script.read_until("holds")
    with Index(home) as index:

        def hear(_: object) -> bool:
            ended.touch()
            return True

        caplog.handler.addFilter(hear)
        result = index.refresh()

        assert script.wait()[0] == 0
        assert result.num_points == 0
        assert [row.metrics for row in index.reports(1)] == [{"loss": 0.5}]
    (message,) = caplog.messages
    assert message.startswith(f"process {script.process.pid} (`")
    assert message.endswith("reads the records into the index; waiting for it")
