"""Starts the process of a worker on this machine, which is a child of this one and leads a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from core_sdk._ground.environment import worker_variables
from core_sdk._machine.processes import Forked, Spawner

_WORKER = Path(__file__).with_name("_worker.py")

WorkerProcess = subprocess.Popen[bytes] | Forked


def execute(variables: Mapping[str, str], connections: Sequence[int], stdout: int, stderr: int) -> WorkerProcess:
    """Starts a worker as a new Python. Raises `OSError`."""
    return subprocess.Popen(
        [sys.executable, "-P", str(_WORKER), *map(str, connections)],
        env=worker_variables(variables),
        pass_fds=connections,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


class WorkerSpawner(Spawner):
    """The spawner of this program's workers."""

    _current: WorkerSpawner | None = None
    _choosing = threading.Lock()

    def __init__(self, origin: tuple[int, Sequence[str], Mapping[str, str]]) -> None:
        self._origin = origin
        _, modules, variables = origin
        super().__init__("core_sdk._execution.workers.local._worker:begin_forked", variables, modules, is_adopting=True)

    @classmethod
    def of_this_program(cls, modules: Sequence[str]) -> WorkerSpawner:
        """Returns the spawner. Makes a new one in a forked program, for other modules, or in another environment."""
        origin = os.getpid(), list(modules), worker_variables({})
        with cls._choosing:
            last = cls._current
            if last is None or last._origin != origin:
                if last is not None:
                    last.close()
                cls._current = last = cls(origin)
        return last

    def start(
        self, variables: Mapping[str, str], connections: Sequence[int], stdout: int, stderr: int
    ) -> WorkerProcess:
        """Forks a worker. Blocks. Raises `OSError`."""
        mask = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
        request = {"variables": dict(variables), "directory": str(Path.cwd()), "mask": mask}
        return self.fork(request, [*connections, stdout, stderr])
