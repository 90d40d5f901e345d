"""A clock that jumps shortens no wait, and lengthens none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from execution.master.searches import events_of, submit_text
from processes import wait_for
from promises import promise

from core_sdk._execution.experiments.calling import call, is_master_running
from core_sdk._execution.experiments.protocol import ChangeSettings, GetStatus, Want
from core_sdk._ground.records import AttemptOver, KillSent, Report, SettingsChanged, StopSent
from core_sdk._home import Home
from core_sdk._home.journal import read_records

TWO_HOURS_S = 7200

# Each process that finds this on its path sees the wall clock as many seconds ahead as the file next to it says.
SHIFTED = """
import pathlib
import time

_SHIFT = pathlib.Path(__file__).with_name("shift")
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + int(_SHIFT.read_text())
time.time_ns = lambda: _time_ns() + int(_SHIFT.read_text()) * 10**9
"""

TRAIN = """
import time
from pathlib import Path
from core_sdk import core

with core.DistributedContext.from_torch_distributed() as distributed, core.init(distributed=distributed) as context:
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1.0})
    while not context.preempt.should_preempt():
        time.sleep(0.05)
    print("saving", time.time(), flush=True)
    while not Path(%r).exists():
        time.sleep(0.05)
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
        (path / "state").write_text("1")
"""

SEARCH = """
name: search
entrypoint: [python, -m, launch.torch_distributed, python, train.py]
searcher: {name: single, metric: loss}
preemption_timeout: 600
environment: {environment_variables: ['PYTHONPATH=%s']}
"""


@pytest.fixture
def jump(tmp_path: Path) -> Callable[[int], None]:
    """Returns a function that sets the clock of all started processes ahead."""
    clock = tmp_path / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(SHIFTED)
    os.environ["PYTHONPATH"] = f"{clock}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def jump(seconds: int) -> None:
        (clock / "shift").with_suffix(".new").write_text(str(seconds))
        (clock / "shift").with_suffix(".new").rename(clock / "shift")

    jump(0)
    return jump


def look_twice(home: Home, experiment_id: int) -> float:
    """Lets the master look at its attempts and returns the time that it records."""
    call(home.root, ChangeSettings(experiment_id=experiment_id, priority=50))
    for _ in range(2):
        call(home.root, GetStatus())
    return [event.time for event in events_of(home, experiment_id) if isinstance(event, SettingsChanged)][-1]


@promise("stop-has-its-time")
def test_a_trial_that_saves_has_its_time_whatever_the_clock_does(
    home: Home, tmp_path: Path, jump: Callable[[int], None]
) -> None:
    """A trial keeps its time for saving although the clock jumps ahead."""
    may_save = tmp_path / "may save"
    text = SEARCH % os.environ["PYTHONPATH"]
    experiment_id = submit_text(home, tmp_path, text, TRAIN % str(may_save))
    log = home.root / "runs" / "1" / "1.log"
    wait_for(lambda: log.exists() and (home.root / "runs" / "1" / "1.journal").exists())
    call(home.root, Want(experiment_id=experiment_id, state="PAUSED"))
    wait_for(lambda: "saving" in log.read_text())
    began = look_twice(home, experiment_id)

    jump(TWO_HOURS_S)
    assert look_twice(home, experiment_id) >= began + TWO_HOURS_S
    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    wait_for(lambda: not is_master_running(home.root))
    look_twice(home, experiment_id)
    jump(-TWO_HOURS_S)
    look_twice(home, experiment_id)
    assert not ends(home, experiment_id)
    may_save.touch()

    wait_for(lambda: bool(ends(home, experiment_id)))
    assert [event.outcome for event in ends(home, experiment_id)] == ["paused"]
    kinds = [type(event) for event in events_of(home, experiment_id)]
    assert StopSent in kinds and KillSent not in kinds


def ends(home: Home, experiment_id: int) -> list[AttemptOver]:
    return [event for event in events_of(home, experiment_id) if isinstance(event, AttemptOver)]


WRITE = """
import sys
from pathlib import Path
from core_sdk._home.journal import JournalWriter
from core_sdk._ground.records import Report
journal = JournalWriter(Path(sys.argv[1]))
for step, _ in enumerate(sys.stdin):
    journal.append(Report(time=0.0, group="training", steps_completed=step, metrics={"step": step}))
"""
BRING = """
import sys
from pathlib import Path
from core_sdk._home.spool import node
from core_sdk._home.spool.receiver import Receiver
spool, home = map(Path, sys.argv[1:])
receiver = Receiver(home, 1, 1)
while True:
    for piece in node.read_news(spool, 1, 1, receiver.known(), 3600):
        receiver.receive(piece)
"""


def test_records_come_home_whatever_the_clock_does(tmp_path: Path, jump: Callable[[int], None]) -> None:
    """Records are brought home in time although the clock jumps."""
    spool, at_home = (tmp_path / name / "runs" / "1" for name in ("spool", "at home"))
    for path in (spool, at_home):
        path.mkdir(parents=True)
    journal = spool / "1.journal"
    arguments = [sys.executable, "-c", textwrap.dedent(BRING), str(tmp_path / "spool"), str(tmp_path / "at home")]
    with (
        subprocess.Popen([sys.executable, "-c", WRITE, str(journal)], stdin=subprocess.PIPE) as writing,
        subprocess.Popen(arguments) as bringing,
    ):
        try:
            assert writing.stdin is not None
            for number, seconds in enumerate((0, TWO_HOURS_S, -TWO_HOURS_S, 0), start=1):
                jump(seconds)
                writing.stdin.write(b"\n")
                writing.stdin.flush()
                wait_for(lambda number=number: num_reports(at_home / "1.journal") == number)  # type: ignore[misc]
        finally:
            writing.kill()
            bringing.kill()


def num_reports(journal: Path) -> int:
    return sum(isinstance(record, Report) for record in read_records(journal)) if journal.exists() else 0
