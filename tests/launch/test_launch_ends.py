"""However ranks that record a trial end, its state and the launcher's exit status say the same."""

from __future__ import annotations

import pytest
from core.script_ends import FAILED_SAVE, HOLDS, IMPORTS, SAVE, STOP
from launches import RunLaunch

from core_sdk._home import Home
from core_sdk._home.index import Index

SCRIPT = """
import os, signal, sys
from core_sdk import core

is_last = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)

def end(stage):
    if stage == sys.argv[1] and (is_last or sys.argv[3] == "all"):
        exec(sys.argv[2])

distributed = core.DistributedContext.from_torch_distributed() if os.environ["WORLD_SIZE"] != "1" else None
with core.init(distributed=distributed) as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    end("inside")
end("after")
"""
STOPPED = """\
context.preempt.should_preempt()
is_last and os.kill(os.getpid(), signal.SIGTERM)
while not context.preempt.should_preempt(): pass
"""
ERROR, COMPLETED, PAUSED = "ERROR", ("COMPLETED", 0), ("PAUSED", 75)
TABLE = {
    ("inside", "pass"): COMPLETED,
    ("inside", "raise ValueError('bad')"): (ERROR, 1),
    ("inside", "sys.exit(3)"): (ERROR, 3),
    ("inside", "sys.exit(75)"): (ERROR, 1),
    ("inside", "os._exit(3)"): (ERROR, 3),
    ("inside", "os._exit(75)"): (ERROR, 1),
    ("inside", "os.kill(os.getpid(), signal.SIGTERM)"): (ERROR, 143),
    ("inside", "os.kill(os.getpid(), signal.SIGKILL)"): (ERROR, 137),
    ("after", "raise ValueError('bad')"): (ERROR, 1),
    ("after", "sys.exit(0)"): COMPLETED,
    ("after", "sys.exit(3)"): (ERROR, 3),
    ("after", "sys.exit(75)"): (ERROR, 1),
    ("after", "os._exit(75)"): (ERROR, 1),
    ("after", "os.kill(os.getpid(), signal.SIGTERM)"): COMPLETED,
    ("after", "os.kill(os.getpid(), signal.SIGKILL)"): (ERROR, 137),
    ("inside", STOPPED): PAUSED,
    ("inside", STOPPED + "sys.exit(75)"): PAUSED,
    ("inside", STOPPED + "os._exit(75)"): PAUSED,
    ("inside", STOPPED + "sys.exit(3)"): (ERROR, 3),
}
# With several ranks the others hear that this one has left without a word.
ALONE = {("inside", "os._exit(0)"): COMPLETED}
CASES = [
    *((1, *case, end) for case, end in (TABLE | ALONE).items()),
    *((2, *case, end) for case, end in TABLE.items()),
]


@pytest.mark.parametrize(("num_ranks", "stage", "way", "end"), CASES)
def test_state_and_status_agree(
    num_ranks: int, stage: str, way: str, end: tuple[str, int], home: Home, run_launch: RunLaunch
) -> None:
    """Under the launcher alone, the trial's state and the exit code agree with the table."""
    ended = run_launch(SCRIPT, stage, way, "all" if way.startswith(STOPPED) else "last", num_ranks=num_ranks)

    with Index(home) as index:
        index.refresh()
        state = index.trial(1).state
    assert (state, ended.code) == end


HELD_TABLE = {
    "raise ValueError('bad')": (ERROR, 1),
    "sys.exit(3)": (ERROR, 3),
    "raise SystemExit(3)": (ERROR, 3),
    STOP + "pass": PAUSED,
    SAVE + STOP + FAILED_SAVE: (ERROR, 74),
    "pass": COMPLETED,
}


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize(("hold", "way"), [(hold, way) for hold in HOLDS for way in HELD_TABLE if hold != "generator"])
def test_state_and_status_agree_however_the_context_is_held(
    hold: str, way: str, num_ranks: int, home: Home, run_launch: RunLaunch
) -> None:
    """State and exit code agree, however the script holds its Context."""
    distributed = "distributed=core.DistributedContext.from_torch_distributed()" if num_ranks > 1 else ""
    saved = way.replace("1}) as", "1}, shard=True) as").replace("2}) as", "2}, shard=True) as")
    script = IMPORTS + HOLDS[hold].replace("END", saved).replace("init()", f"init({distributed})")

    ended = run_launch(script, num_ranks=num_ranks)

    with Index(home) as index:
        index.refresh()
        trial = index.trial(1)
    assert (trial.state, ended.code) == HELD_TABLE[way], trial.reason
