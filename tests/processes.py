"""Scripts in processes of their own, and waiting for what they do."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable

import psutil

TIMEOUT_S = 120


class Script:
    """A Python script in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait(self, timeout_s: float = TIMEOUT_S) -> tuple[int, str, str]:
        """Waits for the end, and returns the exit status, stdout and stderr."""
        output, errors = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, output, errors

    def read_until(self, line: str) -> None:
        """Blocks until the script prints this line."""
        assert self.process.stdout is not None
        for printed in self.process.stdout:
            if printed.rstrip("\n") == line:
                return
        raise AssertionError(f"the script ended without printing {line!r}: {self.wait()}")


def kill_tree(pid: int) -> None:
    """Kills a process and all that it has started, in whichever session; not what it has outlived."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def is_living(pid: int) -> bool:
    """Returns whether the process lives; False if only its exit status is left."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Blocks until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)
