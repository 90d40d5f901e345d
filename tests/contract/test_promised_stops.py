"""What is promised of stops and kills, where no other test holds it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from processes import Script
from promises import promise

from core_sdk import client
from core_sdk._home import Home

StartScript = Callable[..., Script]


@promise("stop-by-signal")
def test_the_second_ctrl_c_interrupts_any_script(start_script: StartScript) -> None:
    """The second Ctrl-C interrupts a script that has heard the first one and goes on."""
    script = start_script(
        """
        from core_sdk import core
        with core.init() as context:
            context.preempt.should_preempt()
            print("on")
            while True: pass
        """
    )
    script.read_until("on")
    script.process.send_signal(signal.SIGINT)
    assert script.process.stderr is not None
    assert "stopping at the next step" in script.process.stderr.readline()

    script.process.send_signal(signal.SIGINT)

    assert script.wait()[0] == -signal.SIGINT


AFTERWARDS = """
import time
from core_sdk import core

with core.init():
    pass
print("left", flush=True)
time.sleep(120)
"""


@promise("trial-killed")
def test_a_kill_leaves_the_end_that_a_script_has_recorded(home: Home, tmp_path: Path) -> None:
    """`trial kill` after the script has left its context leaves the recorded end as it is."""
    (tmp_path / "afterwards.py").write_text(AFTERWARDS)
    command = [sys.executable, "-m", "core_sdk._interfaces.cli"]
    run = subprocess.Popen(
        [*command, "run", "--", sys.executable, str(tmp_path / "afterwards.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "left\n"

    killed = subprocess.run([*command, "trial", "kill", "1"], capture_output=True, text=True)
    run.communicate()

    assert killed.returncode == 0, killed.stderr
    assert "it had ended before (COMPLETED)" in killed.stderr
    assert run.returncode == 0
    assert client.get_trial(1).state is client.TrialState.COMPLETED
