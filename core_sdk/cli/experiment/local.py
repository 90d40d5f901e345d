"""`core-sdk experiment create --local`: a master inside the command, for batch jobs and for continuous integration."""

from __future__ import annotations

import signal
from collections.abc import Callable

from core_sdk.cli._failures import ExitCode
from core_sdk.cli._messages import say
from core_sdk.cli.experiment.live import show
from core_sdk.experiments.best_so_far import Follower
from core_sdk.experiments.calling import call
from core_sdk.experiments.submission import Submitted
from core_sdk.master.local import local_master
from core_sdk.tracking import Home


def run_locally(home: Home, submit: Callable[[Home], Submitted], num_places: int | None, *, as_json: bool) -> int:
    """Runs one experiment to its end; returns the exit status.

    Ctrl-C and SIGTERM pause it: its trials save their checkpoints and end. Raises `MasterError` if the home has a
    master.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with local_master(home, num_places):
        return show(Follower(home, submit(home).experiment_id), as_json=as_json, interrupt=_pause)


def _pause(follower: Follower) -> int:
    experiment_id = follower.experiment.experiment_id
    say(f"pausing experiment {experiment_id}: its trials save their checkpoints")
    call(follower.home.root, "want", experiment_id=experiment_id, state="PAUSED", by="Ctrl-C or SIGTERM")
    for _ in follower.follow():
        if follower.experiment.is_paused and not follower.experiment.num_running:
            break
    say(f"experiment {experiment_id} is paused. `core-sdk experiment activate {experiment_id}` lets it go on")
    return ExitCode.PAUSED
