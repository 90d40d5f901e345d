"""A training that stands still is noticed, and the words say which rank stands where."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from processes import kill_tree, wait_for

from core_sdk._home import Home
from core_sdk.client import Tracker

# It takes ten steps, and then hangs in the way that its argument says.
HANGING = """
import os, re, signal, sys, threading, time
from core_sdk import core

way = sys.argv[1]


def hang():
    if way == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif way == "loop":
        while True:
            pass
    elif way == "C":
        re.match("(a+)+b", "a" * 60)  # for ever, with the interpreter's lock
    elif way == "io":
        os.read(os.pipe()[0], 1)
    elif way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif way == "endless":
        any(iter(int, 1))  # in C, which never returns to the interpreter
    elif way == "uninterrupted":
        os.mkfifo("pipe")  # until somebody writes, the child does not begin, and the kernel lets its parent wait
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "pipe", os.O_RDONLY, 0)])
    elif way == "save":
        with context.checkpoint.store_path({"steps_completed": 10}):
            time.sleep(3600)
    elif way == "lines":
        search()


def search():
    while True:
        x = sum(range(3000))
        y = max(range(3000)) + x
        x = min(range(3000)) + y


with core.init() as context:
    for step in range(1, 40):
        context.train.report_training_metrics(step, {"loss": 1.0})
        context.preempt.should_preempt()
        time.sleep(0.02)
        if step == 10 and context.info.trial.attempt == 1:
            hang()
"""

BOUNDS = {"CORE_SDK_STALL_BOUNDS": "10,1,3"}

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `core-sdk run` with a script."""
    started: list[subprocess.Popen[str]] = []

    def start(
        source: str, way: str, *options: str, command: tuple[str, ...] = (sys.executable,)
    ) -> subprocess.Popen[str]:
        (tmp_path / "train.py").write_text(source)
        run = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", *options, "--", *command, "train.py", way]
        environment = os.environ | BOUNDS
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(run, cwd=tmp_path, env=environment, text=True, stdout=pipe, stderr=subprocess.STDOUT)
        )
        return started[-1]

    yield start
    for each in started:
        kill_tree(each.pid)
        each.communicate()
    for process in psutil.process_iter(["cmdline"]):
        if "train.py" in (process.info["cmdline"] or []) and str(tmp_path) in str(
            process.environ().get("CORE_SDK_HOME")
        ):
            process.kill()


def stalled(home: Home) -> str:
    """Waits until the trial counts as stalled, and returns the reason."""
    reasons = [""]

    def is_stalled() -> bool:
        if home.root.exists():
            reasons.append(next((each.reason for each in Tracker().list_trials()), ""))
        return reasons[-1].startswith("stalled")

    wait_for(is_stalled, 60)
    return reasons[-1]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("lock", "it stands in train.py:12"),
        ("C", "it stands in train.py:17"),
        ("io", "it stands in train.py:19"),
        ("stopped", "was stopped by a signal: `kill -CONT "),
        ("endless", "it stands in train.py:23"),
        ("uninterrupted", ") stands in train.py:26 and cannot be interrupted: it waits in "),
        ("save", "it stands in train.py:29"),
        ("lines", "it loops in train.py:36 search()"),
    ],
)
def test_a_rank_that_hangs_is_named(start: Start, home: Home, way: str, words: str) -> None:
    """The trial's reason says where it stands, and its stacks are kept."""
    process = start(HANGING, way)

    assert words in stalled(home)

    kept = home.trial(1).stall_path(1).read_text()
    assert words in kept.splitlines()[0]
    assert way == "stopped" or "train.py" in kept.partition("\n")[2]
    assert process.poll() is None


LOADING = """
import sys, time
from torch.utils.data import DataLoader
from core_sdk import core


class Samples:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 30:
            time.sleep(3600)
        return index


with core.init() as context:
    for step, batch in enumerate(DataLoader(Samples(), num_workers=1, multiprocessing_context=sys.argv[1]), 1):
        context.train.report_training_metrics(step, {"loss": 1.0})
        context.preempt.should_preempt()
"""


@pytest.mark.parametrize("how", ["fork"])
def test_a_worker_of_a_loader_that_hangs_is_named(start: Start, home: Home, how: str) -> None:
    """The rank waits for its data, and the line of the worker is said, too."""
    start(LOADING, how)

    reason = stalled(home)

    assert "it stands in train.py:18 (DataLoader, whose worker pid" in reason
    assert reason.endswith("stands in train.py:13)")


def test_a_hung_training_is_started_again(start: Start, home: Home) -> None:
    """With `--on-stall restart` it goes on from its newest checkpoint, and the attempt has ended with the words.

    The next attempt takes longer to begin than a rank may be silent.
    """
    slow = 'import os, time; time.sleep(3 * os.path.exists("begun")); open("begun", "w")'
    process = start(slow + HANGING, "lock", "--on-stall", "restart")

    output, _ = process.communicate(timeout=120)

    trial = Tracker().get_trial(1)
    assert (process.returncode, trial.state.name, trial.num_attempts) == (0, "COMPLETED", 2), output
    ended = home.trial(1).read_exit(1)
    assert ended is not None and ended.reason.startswith("stalled: it stands in train.py:12")


RANKS = """
import sys, time
from core_sdk import core

with core.init(distributed="torch") as context:
    ranks = context.distributed
    for step in range(1, 40):
        if step == 10 and ranks.rank == 1:
            time.sleep(3600)
        ranks.allgather(step)
        context.train.report_training_metrics(step, {"loss": 1.0})
        context.preempt.should_preempt()
"""


def test_ranks_that_wait_for_another_one_are_named(start: Start, home: Home) -> None:
    """Rank 1 does not come to a collective call: the words say so, and that the others wait."""
    launcher = (sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node", "3", "--", sys.executable)
    start(RANKS, "", command=launcher)

    assert stalled(home) == "stalled: rank 1 stands in train.py:9; ranks 0 and 2 wait for it in allgather"


# Rank 1 waits for a message, and the others for it in a collective call that it does not make.
CALLS = """
import torch
from core_sdk import core

with core.init(distributed="torch") as context:
    rank, one = context.distributed.rank, torch.ones(1)
    torch.distributed.init_process_group("gloo")
    for step in range(1, 40):
        if step == 10 and rank == 1:
            torch.distributed.recv(one, 0)
        torch.distributed.all_reduce(one)
        context.train.report_training_metrics(step, {"loss": 1.0})
        context.preempt.should_preempt()
"""


def test_ranks_that_all_wait_are_compared_by_their_collective_calls(start: Start, home: Home) -> None:
    """Signs are in step until then; the recorder of torch knows who has not come."""
    launcher = (sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node", "3", "--", sys.executable)
    start(CALLS, "", command=launcher)

    assert stalled(home).endswith(
        "; rank 1 is at collective call 9 (all_reduce), ranks 0 and 2 are at collective call 10 (all_reduce)"
    )

    assert "gloo 0: collective call 10, all_reduce" in home.trial(1).stall_path(1).read_text()


# Its first step takes seconds, and its validations grow; it hangs nowhere.
ODD = """
import sys, time
from core_sdk import core


def work(seconds):
    end = time.monotonic() + seconds
    x = 1.0
    while time.monotonic() < end:
        x = sum(range(3000)) % 7
        y = max(range(3000)) + x
        x = len([z for z in range(3000) if z > y])
        y = sorted(range(3000))[0] + x
        x = min(range(3000)) + y


with core.init() as context:
    work(4)
    for step in range(1, 30):
        work(0.02 * step)
        context.train.report_training_metrics(step, {"loss": 1.0})
        context.preempt.should_preempt()
        if step == 15:
            work(5)
    with context.profiler.phase("validation"):
        time.sleep(2)  # twice as long as a step may be silent: what is tested
"""


def test_a_training_of_an_odd_rhythm_is_not_stalled(start: Start, home: Home) -> None:
    """Whoever works is somewhere else at each look."""
    process = start(ODD, "")

    output, _ = process.communicate(timeout=100)

    assert process.returncode == 0, output
    assert "stalled" not in output
    assert not home.trial(1).stall_path(1).exists()


def test_figures_are_no_sign_of_life(start: Start, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of a rank that hangs goes on to record them, more often than the rank may be silent."""
    monkeypatch.setenv("CORE_SDK_FIGURES_S", "0.1")
    start(HANGING, "lock")

    assert "it stands in train.py:12" in stalled(home)

    assert '"profile"' in home.trial(1).journal_path(1).read_text()
