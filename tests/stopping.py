"""Asks a training of any shape to stop, and counts how long it goes on."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from core_sdk import client
from core_sdk._ground.records import STOPPED_BY_SEARCHER
from core_sdk._home import Home
from core_sdk.core import Context

Kind = Literal["searcher", "pause", "SIGTERM", "deadline"]
KINDS = get_args(Kind)

ASKED_AT = 3
MOST_STEPS = 20

REASONS = {"searcher": STOPPED_BY_SEARCHER, "pause": "client", "SIGTERM": "SIGTERM", "deadline": "deadline"}
"""The words with which a list shows the trial."""


class Stop:
    """A stop that comes in the third step. Each shape calls `step` in each step, before its report."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.trial_id = 0
        self.num_steps = 0

    def step(self, context: Context) -> None:
        self.num_steps += 1
        assert self.num_steps < MOST_STEPS, "it trains on"
        if self.num_steps == ASKED_AT:
            self.trial_id = context.info.trial.trial_id
            self._ask(context)
            while not context.preempt.is_stop_agreed:
                time.sleep(0.01)

    def _ask(self, context: Context) -> None:
        match self.kind:
            case "searcher":
                folder = Home(Path(os.environ["CORE_SDK_HOME"])).folder(self.trial_id)
                folder.request_stop(context.info.trial.attempt, STOPPED_BY_SEARCHER)
            case "pause":
                client.get_trial(self.trial_id).pause()
            case "SIGTERM":
                # From another process and to a loader's workers, too, as Slurm does.
                workers = [str(process.pid) for process in multiprocessing.active_children()]
                subprocess.run(["kill", "-TERM", str(os.getpid()), *workers], check=True)
            case "deadline":
                context.preempt.ask_to_stop("deadline")  # as the thread does that waits for it

    def check(self, *, has_checkpoint: bool) -> None:
        """Checks that it ended within two reports, in a true state, and has a checkpoint if it should."""
        trial = client.get_trial(self.trial_id)
        assert (trial.state.name, trial.reason) == ("PAUSED", REASONS[self.kind]), self
        steps = [report.steps_completed for report in trial.iter_metrics("training")]
        assert ASKED_AT <= self.num_steps <= ASKED_AT + 1, self
        assert steps, self
        assert bool(trial.list_checkpoints()) == has_checkpoint, self

    def __repr__(self) -> str:
        return f"<Stop by {self.kind}, trial {self.trial_id}, {self.num_steps} steps>"


def check_all(shape: Callable[[Stop, bool], None], *, has_saved: bool, always_saves: bool) -> None:
    """Stops a shape in all ways. `has_saved`: it has a checkpoint then; `always_saves`: it saves when it stops."""
    # A signal is last, since it stops all that this process has still to train.
    for kind in sorted(KINDS, key="SIGTERM".__eq__):
        stop = Stop(kind)
        shape(stop, has_saved)
        stop.check(has_checkpoint=has_saved or always_saves)
