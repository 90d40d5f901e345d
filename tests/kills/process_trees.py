"""Trees of processes that train, and which process of a tree is what."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from processes import wait_for

_HELD_STAGES = """\
import os, pathlib, subprocess, sys, time
from core_sdk import core

RANK, SIZE = os.environ.get("RANK", "0"), int(os.environ.get("WORLD_SIZE", "1"))
HERE = pathlib.Path(__file__).parent


def reach(stage):
    (HERE / f"{stage}-{RANK}").touch()
    while stage == sys.argv[1] and not (HERE / "go").exists():
        time.sleep(0.01)


def train():
    reach("start")
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    distributed = core.DistributedContext.from_torch_distributed() if SIZE > 1 else None
    with core.init(distributed=distributed) as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        reach("middle")
    reach("end")
"""
SCRIPT = _HELD_STAGES + "\ntrain()\n"
WORKERS = (
    _HELD_STAGES
    + """

def work():
    global RANK, SIZE
    RANK, SIZE = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
    train()


if __name__ == "__main__":
    from core_sdk._execution.workers import LocalEngine, WorkerGroup

    with WorkerGroup(2, LocalEngine()) as workers:
        workers.run(work)
"""
)
TORCH = [sys.executable, "-m", "launch.torch_distributed"]
SEARCH = """\
name: search
entrypoint: [{program}]
searcher: {{name: single, metric: loss, max_length: {{batches: 1}}}}
max_restarts: 0
"""


class ProcessTree:
    """All processes that record in this home, but none of the tests' own: they have its path in their environment."""

    def __init__(self, home: Path, directory: Path) -> None:
        """Scripts are written, and work, in the directory."""
        self.directory = directory
        self._mark = f"CORE_SDK_HOME={home}".encode()
        self._tests = {os.getpid(), os.getppid()}
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, source: str, *arguments: str, program: Sequence[str] = (sys.executable,)) -> None:
        """Starts `core-sdk run` of a program with a script that is given by its source."""
        path = self.directory / "train.py"
        path.write_text(source)
        self.start("run", "--", *program, str(path), *arguments)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / "output").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def roles(self) -> dict[str, int]:
        """Returns the living processes by what they are; processes of one role are numbered by their pids."""
        found: dict[str, int] = {}
        for process in sorted(self.living(), key=lambda process: process.pid):
            with contextlib.suppress(psutil.Error):
                role = _role(process)
                number = sum(name.startswith(role) for name in found)
                found[f"{role} {number}" if number else role] = process.pid
        return found

    def living(self) -> list[psutil.Process]:
        return list(self._living())

    def _living(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                is_dead = process.status() == psutil.STATUS_ZOMBIE
                if self._mark in variables and process.pid not in self._tests and not is_dead:
                    yield process

    def kill(self, *roles: str) -> None:
        """Kills the processes of these roles all at once."""
        pids = [self.roles()[role] for role in roles]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def kill_all(self) -> None:
        while found := self.living():
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        for started in self.started:
            started.wait()

    def wait_until_gone(self, timeout_s: float, *, but: Sequence[str] = ()) -> None:
        try:
            wait_for(lambda: not [role for role in self.roles() if not role.startswith(tuple(but))], timeout_s)
        except AssertionError:
            raise AssertionError(f"left: {self.roles()}") from None


def _role(process: psutil.Process) -> str:
    words = process.cmdline() or [""]  # it is about to end
    text = " ".join(words)
    if any(word.endswith("_guardian_process.py") for word in words[1:4]):
        # Its mark names the run info of the attempt.
        return "agent's guardian" if "/runs/" in words[-1] else "guardian"
    if "_spawner_process.py" in text:
        parent = process.parent()
        is_forked = parent is not None and "_spawner_process.py" in " ".join(parent.cmdline())
        return "agent" if is_forked else "spawner"
    if "core_sdk._execution.agent" in text:
        return "agent"
    if "core_sdk._execution.master" in text:
        return "master"
    if "core_sdk._interfaces.cli" in text:
        return "command"
    if "launch." in text:
        return "launcher"
    if words[0] == "sleep":
        return "child"
    rank = process.environ().get("RANK")
    return "script" if rank is None else f"rank{rank}"
