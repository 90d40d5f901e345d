"""Child processes that train: supervises them as ranks, judges failures, and leaves none behind. Free of torch.

- `CaughtSignals`: the signals that this process receives, as values.
- `RankProcesses`: child processes from their start to the end of what they leave behind.
- `Supervisor`: ranks through all their starts: what a signal does to them, and with which `Outcome` they ended.
- `RankStatements`: what ranks say about how they end.
- `Guardian`: a helper process that ends the ranks if the process that supervises them is killed. Its module says who
  kills whom, however supervisors nest.
- `end_marked`: what a guardian does, done by this process.
- `is_any_marked`, `guardians_of`: the processes that carry a supervisor's mark, and the guardians that look for them.
- `describe_marked`, `end_left`: the processes that a command has left behind, named and ended.
- `Traces`: how anybody on the machine tells whether a process of an attempt lives.
- `Spawner`: a process that has imported modules once, and forks others, such as workers and agents.
- `output`: what ranks write, forwarded line by line.
- `cause_of`, `failure_report`, `exit_code`: an outcome in words, and as an exit status.

Nothing here reads the environment: callers pass in what they know.
"""

from __future__ import annotations

from core_sdk._machine.processes._causes import STOPPED, WELL, FailureKind, RankSeen, kind_of
from core_sdk._machine.processes._failure_text import (
    cause_of,
    excerpt,
    exit_code,
    failure_report,
    shortened,
    signal_name,
)
from core_sdk._machine.processes._guardian import Guardian
from core_sdk._machine.processes._guardian_process import end_marked, guardians_of, is_any_marked
from core_sdk._machine.processes._left_processes import Traces, describe_marked, end_left
from core_sdk._machine.processes._outcomes import (
    Failed,
    FailedElsewhere,
    Killed,
    NodesLost,
    Obeyed,
    Outcome,
    RankGrace,
    Stopping,
    Succeeded,
    judge,
)
from core_sdk._machine.processes._ranks import RankProcesses
from core_sdk._machine.processes._signals import (
    STOPS,
    CaughtSignals,
    block_usr1,
    heed_signals,
    outlive_stops,
    start_helper,
)
from core_sdk._machine.processes._spawner import Forked, Spawner
from core_sdk._machine.processes._spawner_process import exit_at_once
from core_sdk._machine.processes._statements import RankStatements
from core_sdk._machine.processes._supervisor import Supervisor
