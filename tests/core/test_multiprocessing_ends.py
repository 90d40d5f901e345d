"""However a process of multiprocessing ends, and however it holds its Context, the trial's state is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from core.script_ends import HOLDS, IMPORTS

from core_sdk._home import Home
from core_sdk._home.index import Index

# Each way to start a process gets each script in turn, and the process executes it in a function.
STARTERS = {
    "fork": "start_process('fork')",
    "spawn": "start_process('spawn')",
    "forkserver": "start_process('forkserver')",
    "executor": "submit",
    "pool": "apply",
    "torch": "start_by_torch",
}
PROGRAM = """
import json, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import core_sdk.core

def work(script):
    exec(script, {})

def start_process(method):
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["core_sdk.core"])
    def start(script):
        process = context.Process(target=work, args=[script])
        process.start()
        process.join()
    return start

def submit(script):
    with ProcessPoolExecutor(1) as executor:
        executor.submit(work, script).exception()

def apply(script):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        if "exit" in script:  # it ends the worker of the pool, which then starts another one
            process = pool._pool[0]
            pool.apply_async(work, [script])
            process.join()
        else:
            pool.apply_async(work, [script]).wait()
            pool.close()
            pool.join()

def work_as(rank, script):
    exec(script, {})

def start_by_torch(script):
    from torch.multiprocessing import start_processes
    try:
        start_processes(work_as, [script], 1, start_method="fork")
    except Exception:
        pass

if __name__ == "__main__":
    start = eval(sys.argv[1])
    for script in json.loads(sys.stdin.read()):
        start(script)
"""
ENDS = {
    "pass": ("COMPLETED", ""),
    "raise ValueError('bad')": ("ERROR", "ValueError: bad"),
    "sys.exit(0)": ("COMPLETED", ""),
    "sys.exit(1)": ("ERROR", "SystemExit: 1"),
    "sys.exit('no data')": ("ERROR", "SystemExit: no data"),
    "raise KeyboardInterrupt": ("CANCELED", "interrupted by Ctrl-C, or SIGINT"),
    "os.kill(os.getpid(), signal.SIGKILL)": ("ERROR", "its process ended without a word"),
}
# A generator is closed before anybody can know of the error.
HELD = tuple(hold for hold in HOLDS if hold != "generator")
SOME = ("function", "with")


def ends(home: Home, directory: Path, starter: str, scripts: list[str]) -> list[tuple[str, str]]:
    """Returns the state of the trial of each script, and its reason."""

    program = directory / "program.py"
    program.write_text(PROGRAM)
    subprocess.run(
        [sys.executable, str(program), STARTERS[starter]], input=json.dumps(scripts), text=True, check=True, timeout=120
    )
    with Index(home) as index:
        index.refresh()
        trials = [index.trial(number) for number in range(1, len(scripts) + 1)]
    return [(trial.state, trial.reason) for trial in trials]


def assert_true(home: Home, directory: Path, starter: str, rows: list[tuple[str, str]]) -> None:
    scripts = [IMPORTS + HOLDS[hold].replace("END", way) for hold, way in rows]

    found = ends(home, directory, starter, scripts)

    assert dict(zip(rows, found, strict=True)) == {(hold, way): ENDS[way] for hold, way in rows}


def test_the_state_tells_how_a_forked_process_has_ended(home: Home, tmp_path: Path) -> None:
    """A forked process, however it ends and holds its Context, leaves the state and the reason that a script would."""
    assert_true(home, tmp_path, "fork", [(hold, way) for hold in HELD for way in ENDS])


@pytest.mark.parametrize("starter", ["spawn", "forkserver"])
def test_the_state_tells_how_a_new_process_has_ended(starter: str, home: Home, tmp_path: Path) -> None:
    """The same holds for a process that begins with a new interpreter, or is forked from a server."""
    assert_true(home, tmp_path, starter, [("function", "raise ValueError('bad')"), ("start", "sys.exit(1)")])


@pytest.mark.parametrize("starter", ["executor", "pool"])
def test_the_state_tells_how_a_task_of_a_pool_has_ended(starter: str, home: Home, tmp_path: Path) -> None:
    """The error of a task in a pool of processes is the error of its training, though the worker goes on."""
    ways = [way for way in ENDS if "kill" not in way and "Keyboard" not in way]
    rows = [(hold, way) for hold in SOME for way in ways]
    if starter == "pool":  # its worker keeps an error until nobody can know whose it was
        rows.remove(("function", "raise ValueError('bad')"))
    assert_true(home, tmp_path, starter, rows)


def test_the_state_tells_how_a_process_of_torch_has_ended(home: Home, tmp_path: Path) -> None:
    """The error of a function that torch starts counts, and not the exit with which torch tells of it."""
    ways = [way for way in ENDS if "kill" not in way and "Keyboard" not in way]
    assert_true(home, tmp_path, "torch", [(hold, way) for hold in SOME for way in ways])
