"""No process that local workers have started outlives their program, however that ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Script, is_living, wait_for

PROGRAM = """
import multiprocessing, os, pathlib, signal, subprocess, sys, time
from core_sdk._execution.workers import LocalEngine, WorkerGroup

def work(directory):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (pathlib.Path(directory) / f"child-{os.environ['RANK']}.new").write_text(str(child.pid))
    (pathlib.Path(directory) / f"child-{os.environ['RANK']}.new").rename(f"{directory}/child-{os.environ['RANK']}")
    time.sleep(600 if sys.argv[2] == "works" else 0)

if __name__ == "__main__":
    if sys.argv[3] == "exits":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with WorkerGroup(2, LocalEngine()) as workers:
        if sys.argv[3] == "forks":
            forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=[600])
            forked.start()
            pathlib.Path(sys.argv[1], "forked").write_text(str(forked.pid))
        workers.run(work, sys.argv[1])
"""


def _children(directory: Path) -> list[int]:
    wait_for(lambda: all((directory / f"child-{rank}").exists() for rank in range(2)))
    return [int((directory / f"child-{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    ("number", "way"),
    [(signal.SIGINT, "dies"), (signal.SIGTERM, "dies"), (signal.SIGTERM, "exits"), (signal.SIGKILL, "dies")],
)
def test_children_of_workers_end_with_the_program(
    number: signal.Signals, way: str, start_script: Callable[..., Script], tmp_path: Path
) -> None:
    """Children of workers, also in sessions of their own, end with the program."""
    program = start_script(PROGRAM, str(tmp_path), "works", way)
    children = _children(tmp_path)

    os.kill(program.process.pid, number)
    program.wait()

    wait_for(lambda: not any(map(is_living, children)))


def test_children_of_workers_end_with_the_group(start_script: Callable[..., Script], tmp_path: Path) -> None:
    """Children of workers end when the group is closed."""
    program = start_script(PROGRAM, str(tmp_path), "returns", "dies")
    children = _children(tmp_path)

    program.wait()

    assert not any(map(is_living, children))


def test_workers_end_with_a_program_that_has_forked(start_script: Callable[..., Script], tmp_path: Path) -> None:
    """Workers end with the program although a process that it forked lives on."""
    program = start_script(PROGRAM, str(tmp_path), "works", "forks")
    children = _children(tmp_path)

    program.process.kill()

    wait_for(lambda: not any(map(is_living, children)))
    os.kill(int((tmp_path / "forked").read_text()), signal.SIGKILL)
