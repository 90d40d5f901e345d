"""A training on a Ray cluster whose processes a test kills."""

from __future__ import annotations

from pathlib import Path

import psutil
from execution.workers.engines import RAY, VARIABLES, UnwatchedRay
from execution.workers.programs import Programs
from frameworks.environments import environment
from processes import wait_for
from train.conftest import programs_that_train

from core_sdk._home import Home

BOUND_S = 30.0
"""Within which no worker is left, whatever was killed."""

# Of Ray, for its own processes, and for the end of a program whose cluster is gone.
_RAYS_BOUND_S = 90.0


class RayTraining:
    """A program that trains for ever with two workers, and its processes."""

    def __init__(self, ray: UnwatchedRay, home: Home, directory: Path) -> None:
        engine = RAY.format(address=ray.address)
        programs = Programs("ray", environment("ray").python, engine, directory, VARIABLES)
        self.program = programs_that_train(programs).start("""
            def function():
                print("worker", os.getpid(), os.getppid(), flush=True)
                while True:
                    report(1, {"step": "1"})
                    time.sleep(0.02)

            try:
                fit(function)
            except TrainingFailedError as error:
                print(error, flush=True)
        """)
        log = home.folder(1).log_path(1)
        wait_for(lambda: log.exists() and log.read_text().count("worker ") == 2)
        told = [line.split()[-2:] for line in log.read_text().splitlines() if "worker " in line]
        self.workers = [psutil.Process(int(pid)) for pid, _ in told]
        self.actors = [psutil.Process(int(pid)) for _, pid in told]

    def await_end(self) -> tuple[int, str, str]:
        """Waits until no worker is left, which is to come within the bound, and then for the others."""
        wait_for(lambda: not any(map(_is_living, self.workers)), BOUND_S)
        ended = self.program.wait(_RAYS_BOUND_S)
        wait_for(lambda: not any(map(_is_living, self.actors)), _RAYS_BOUND_S)
        return ended


def _is_living(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
