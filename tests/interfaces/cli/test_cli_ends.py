"""However a script ends, the state of its trial and the exit status of `core-sdk run` say the same."""

from __future__ import annotations

import sys

import pytest
from core.script_ends import FAILED_SAVE, HOLDS, IMPORTS, SAVE, STOP
from interfaces.cli.commands import Cli, WriteScript

from core_sdk._home import Home
from core_sdk._home.index import Index

SCRIPT = """
import os, signal, sys
from core_sdk import core

def end(stage):
    if stage == sys.argv[1]:
        exec(sys.argv[2])

end("before")
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    end("inside")
end("after")
"""
# By the way in which the script ends: the state and the status before init(), inside the Context, and after it.
ERROR, COMPLETED = "ERROR", ("COMPLETED", 0)
TABLE = {
    "pass": (COMPLETED, COMPLETED, COMPLETED),
    "raise ValueError('bad')": ((ERROR, 1), (ERROR, 1), (ERROR, 1)),
    "sys.exit(0)": (COMPLETED, COMPLETED, COMPLETED),
    "sys.exit(3)": ((ERROR, 3), (ERROR, 3), (ERROR, 3)),
    "sys.exit(75)": ((ERROR, 1), (ERROR, 1), (ERROR, 1)),
    "os._exit(0)": (COMPLETED, COMPLETED, COMPLETED),
    "os._exit(3)": ((ERROR, 3), (ERROR, 3), (ERROR, 3)),
    "os._exit(75)": ((ERROR, 1), (ERROR, 1), (ERROR, 1)),
    "os.kill(os.getpid(), signal.SIGTERM)": ((ERROR, 143), (ERROR, 143), COMPLETED),
    "os.kill(os.getpid(), signal.SIGKILL)": ((ERROR, 137), (ERROR, 137), (ERROR, 137)),
    "raise KeyboardInterrupt": (("CANCELED", 130), ("CANCELED", 130), ("CANCELED", 130)),
}
# Somebody asks for a stop, which the script heeds, and then ends in this way.
STOPPED = """\
context.preempt.should_preempt()
os.kill(os.getpid(), signal.SIGTERM)
while not context.preempt.should_preempt(): pass
"""
STOPPED_TABLE = {
    "pass": ("PAUSED", 75),
    "sys.exit(0)": ("PAUSED", 75),
    "sys.exit(75)": ("PAUSED", 75),
    "os._exit(0)": ("PAUSED", 75),
    "os._exit(75)": ("PAUSED", 75),
    "sys.exit(3)": (ERROR, 3),
    "os._exit(3)": (ERROR, 3),
    "raise ValueError('bad')": (ERROR, 1),
}
CASES = [
    *(
        (stage, way, row[index])
        for way, row in TABLE.items()
        for index, stage in enumerate(("before", "inside", "after"))
    ),
    *(("inside", STOPPED + way, end) for way, end in STOPPED_TABLE.items()),
]


@pytest.mark.parametrize(("stage", "way", "end"), CASES)
def test_state_and_status_agree(
    stage: str, way: str, end: tuple[str, int], home: Home, cli: Cli, write_script: WriteScript
) -> None:
    """The trial's state and the exit status agree with the table in docs/stop.md."""
    path = write_script(SCRIPT)

    status = cli("run", "--", sys.executable, str(path), stage, way).status

    with Index(home) as index:
        index.refresh()
        state = index.trial(1).state
    assert (state, status) == end


# By the way in which the script ends, however it holds its Context.
HELD_TABLE = {
    "raise ValueError('bad')": (ERROR, 1),
    "sys.exit(3)": (ERROR, 3),
    "sys.exit('bad')": (ERROR, 1),
    "exit(3)": (ERROR, 3),
    "raise SystemExit(3)": (ERROR, 3),
    "raise KeyboardInterrupt": ("CANCELED", 130),
    "raise core_sdk.InvalidHP('too large')": COMPLETED,
    STOP + "pass": ("PAUSED", 75),
    STOP + "sys.exit(3)": (ERROR, 3),
    SAVE + STOP + FAILED_SAVE: (ERROR, 74),
    "pass": COMPLETED,
}


@pytest.mark.parametrize(
    ("hold", "way"),
    [(hold, way) for hold in HOLDS for way in HELD_TABLE if hold != "generator" or "InvalidHP" not in way],
)
def test_state_and_status_agree_however_the_context_is_held(
    hold: str, way: str, home: Home, cli: Cli, write_script: WriteScript
) -> None:
    """State and exit status agree even if Python closes the Context."""
    path = write_script(IMPORTS + HOLDS[hold].replace("END", way))

    status = cli("run", "--", sys.executable, str(path)).status

    with Index(home) as index:
        index.refresh()
        trial = index.trial(1)
    expected = (ERROR, 1) if hold == "generator" and FAILED_SAVE in way else HELD_TABLE[way]
    assert (trial.state, status) == expected, trial.reason
