"""Ranks that are wrappers around a training: a stop goes to the training, whose end the launcher's tells."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from launches import Ended, Launch, StartLaunch, live_processes
from processes import wait_for

from core_sdk._machine.processes import RankProcesses
from core_sdk._machine.processes._sessions import Process, addressees, trainings

SHELL, PYTHON, TEE, WORKER = Process(10, 1, False), Process(11, 10, True), Process(12, 10, False), Process(13, 11, True)

# A training that takes its time to save.
TRAINING = """
import sys, time
from core_sdk import core
def say(text):
    print(text, flush=True)
distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed) as context:
    distributed.allgather(context.preempt.should_preempt())
    say("running")
    while not context.preempt.should_preempt():
        time.sleep(0.01)
    time.sleep(float(sys.argv[1]))
    if sys.argv[2:] == ["fails"]:
        raise OSError("no space")
    say("saved")
"""
_RUNNING = ("[rank=0] running", "[rank=1] running")
_PYTHON = shlex.quote(sys.executable)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def _start(start_launch: StartLaunch, *program: str, source: str = TRAINING) -> Launch:
    return start_launch(source, overrides=["--", *program])


def _stop(launch: Launch, number: int = signal.SIGTERM) -> Ended:
    launch.read_until(*_RUNNING)
    launch.send(number)
    return launch.wait()


WRAPPERS = {
    "sh": ("sh", "-c", f"{_PYTHON} train.py 0.5"),
    "exec": ("sh", "-c", f"exec {_PYTHON} train.py 0.5"),
    "set -e": ("bash", "-c", f"set -e; {_PYTHON} train.py 0.5; echo done"),
    "echo": ("bash", "-c", f"{_PYTHON} train.py 0.5; echo done"),
    "tee": ("bash", "-c", f"{_PYTHON} train.py 0.5 | tee log.$RANK"),
    "subshell": ("bash", "-c", f"(cd .; {_PYTHON} train.py 0.5; echo done)"),
    "two shells": ("sh", "-c", f"sh -c '{_PYTHON} train.py 0.5; true'; echo done"),
    "nohup": ("nohup", sys.executable, "train.py", "0.5"),
    "env": ("env", "A=b", sys.executable, "train.py", "0.5"),
    "nice": ("nice", sys.executable, "train.py", "0.5"),
    "taskset": ("taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, "train.py", "0.5"),
    "time": ("bash", "-c", f"time {_PYTHON} train.py 0.5"),
    "timeout": ("sh", "-c", f"timeout 100 {_PYTHON} train.py 0.5; echo done"),
    "job control": ("bash", "-c", f"set -m; {_PYTHON} train.py 0.5; echo done"),
}


@pytest.mark.parametrize("program", WRAPPERS.values(), ids=WRAPPERS)
def test_a_stop_reaches_the_training_inside_a_wrapper(program: tuple[str, ...], start_launch: StartLaunch) -> None:
    """A stop reaches a training inside a wrapper, and the wrapper runs to its end."""
    launch = _start(start_launch, *program)

    ended = _stop(launch)

    assert (ended.code, ended.stdout.count("saved")) == (75, 2), ended.stderr
    assert ended.stdout.count("done") == 2 * ("done" in program[-1])
    assert "stopped as asked, to be continued" in ended.stderr


def test_a_wrapper_that_dies_of_the_stop_does_not_hide_that_the_training_saved(
    start_launch: StartLaunch, launch_directory: Path
) -> None:
    """If a wrapper dies of the stop, its training can still save, and the exit code is 75."""
    launch = _start(start_launch, "sh", "-c", f"{_PYTHON} train.py 7; true")
    launch.read_until(*_RUNNING)

    for process in map(psutil.Process, live_processes(launch_directory)):
        process.send_signal(signal.SIGTERM)

    ended = launch.wait()
    assert (ended.code, ended.stdout.count("saved")) == (75, 2), ended.stderr


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "not asked"])
def test_a_wrapper_may_die_of_a_stop_before_its_supervisor_hears_of_it(is_asked: bool) -> None:
    """After a stop, a rank whose wrapper died ends with its training; without a stop, with the wrapper."""
    source = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(120)"
    command = f"{_PYTHON} -c '{source}'; true"
    wrapper = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True)
    assert wrapper.stdout is not None
    wrapper.stdout.readline()
    [training] = psutil.Process(wrapper.pid).children()
    ranks = RankProcesses()
    ranks.add(0, wrapper.pid)
    [watcher] = [thread for thread in threading.enumerate() if thread.name == "core-sdk-rank-0"]

    os.kill(wrapper.pid, signal.SIGTERM)
    watcher.join()
    deaths_at_once = ranks.deaths()
    if is_asked:
        ranks.signal(signal.SIGTERM)
        training.kill()
    wait_for(lambda: set(ranks.deaths()) == {0})
    ranks.kill()
    wrapper.communicate()

    assert deaths_at_once == {}


def test_a_save_that_fails_behind_a_dead_wrapper_is_not_to_be_continued(
    start_launch: StartLaunch, launch_directory: Path
) -> None:
    """A save that fails after the wrapper's death does not give the exit code 75."""
    launch = _start(start_launch, "sh", "-c", f"{_PYTHON} train.py 0.5 fails; true")
    launch.read_until(*_RUNNING)

    for process in map(psutil.Process, live_processes(launch_directory)):
        process.send_signal(signal.SIGTERM)

    ended = launch.wait()
    assert (ended.code, "OSError: no space" in ended.stderr) == (143, True), ended.stderr


def test_the_grace_of_a_training_inside_a_dead_wrapper_ends(
    start_launch: StartLaunch, launch_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training inside a dead wrapper is killed after the grace."""
    monkeypatch.setenv("CORE_SDK_GRACE_S", "1")
    launch = _start(start_launch, "sh", "-c", f"{_PYTHON} train.py 120; true")
    launch.read_until(*_RUNNING)

    for process in map(psutil.Process, live_processes(launch_directory)):
        process.send_signal(signal.SIGTERM)

    ended = launch.wait()
    assert (ended.code, "had not ended in the grace after SIGTERM" in ended.stderr) == (137, True)
    assert live_processes(launch_directory) == []


def test_a_script_of_its_own_manners_is_stopped_inside_a_wrapper(start_launch: StartLaunch) -> None:
    """A script without Core SDK is stopped inside a wrapper too."""
    source = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(0)))
        print("running")
        time.sleep(120)
    """
    launch = _start(start_launch, "bash", "-c", f"{_PYTHON} -u train.py; exit $?", source=source)

    ended = _stop(launch)

    assert (ended.code, ended.stdout.count("saved")) == (75, 2)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("script", ["{}", "{}; echo done", "set -e; {}; echo done"])
def test_ctrl_c_ends_wrapper_and_training_as_in_a_terminal(
    shell: str, script: str, start_launch: StartLaunch, launch_directory: Path
) -> None:
    """Ctrl-C cancels wrapper and training if the script never asks should_preempt()."""
    source = TRAINING.replace("context.preempt.should_preempt()", "False")
    launch = _start(start_launch, shell, "-c", script.format(f"{_PYTHON} train.py 0"), source=source)

    ended = _stop(launch, signal.SIGINT)

    assert ended.code == 130, ended.stderr
    assert "cancelled by SIGINT (Ctrl-C)" in ended.stderr
    assert live_processes(launch_directory) == []


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("script", ["{}", "{}; echo done", "set -e; {}; echo done"])
def test_ctrl_c_lets_a_wrapped_training_save(
    shell: str, script: str, start_launch: StartLaunch, launch_directory: Path
) -> None:
    """Ctrl-C lets a wrapped training save, whatever its shell does."""
    launch = _start(start_launch, shell, "-c", script.format(f"{_PYTHON} train.py 0.5"))

    ended = _stop(launch, signal.SIGINT)

    assert (ended.code, ended.stdout.count("saved")) == (75, 2), ended.stderr
    assert live_processes(launch_directory) == []


def test_a_word_for_the_script_does_not_kill_its_wrapper(start_launch: StartLaunch) -> None:
    """SIGUSR1 reaches the script and does not kill its wrapper."""
    source = """
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: (print("heard"), sys.exit(0)))
        print("running")
        time.sleep(120)
    """
    launch = _start(start_launch, "sh", "-c", f"{_PYTHON} -u train.py; exit $?", source=source)

    ended = _stop(launch, signal.SIGUSR1)

    assert (ended.code, ended.stdout.count("heard")) == (0, 2)


def test_a_wrapper_that_hides_its_training_is_killed_with_it(start_launch: StartLaunch, launch_directory: Path) -> None:
    """A training in a process group of its own is killed when another rank fails."""
    source = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(f"up.{os.environ['RANK']}", "w").close()
        while not (os.path.exists("up.0") and os.path.exists("up.1")): time.sleep(0.01)
        time.sleep(120 * (os.environ["RANK"] == "0"))
        os._exit(3)
    """
    launch = _start(start_launch, "bash", "-c", f"set -m; {_PYTHON} train.py; exit $?", source=source)

    ended = launch.wait()

    assert (ended.code, ended.failure.rank) == (3, 1)
    assert live_processes(launch_directory) == []


def test_without_python_the_ranks_own_process_gets_the_stop(start_launch: StartLaunch, launch_directory: Path) -> None:
    """Without a Python process the rank itself gets the stop, and Ctrl-C its children too."""
    # The child says so: bash forgets a signal that comes while it forks.
    launch = _start(start_launch, "bash", "-c", "sh -c 'echo running; exec sleep 120'; echo done")

    ended = _stop(launch, signal.SIGINT)

    assert (ended.code, "done" in ended.stdout) == (130, False)
    assert live_processes(launch_directory) == []


@pytest.mark.parametrize("stop", [[], [signal.SIGTERM]])
def test_ranks_that_end_with_75_are_to_be_continued(stop: list[int], start_launch: StartLaunch) -> None:
    """A script of a batch system's manners, or a launcher in a launcher; asked to or not."""
    source = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
        print("running")
        time.sleep(120 if sys.argv[1:] else 0)
        sys.exit(75)
    """
    launch = start_launch(source, *(["waits"] if stop else []))
    launch.read_until(*_RUNNING)

    for number in stop:
        launch.send(number)

    ended = launch.wait()
    assert (ended.code, ended.last_words) == (75, "[core-sdk] stopped as asked, to be continued; exit code 75")


def test_a_batch_script_that_tests_for_75_sees_it(tmp_path: Path, launch_directory: Path) -> None:
    """A batch script sees the exit code 75 of a launcher with a wrapper."""
    (tmp_path / "train.py").write_text(TRAINING)
    wrapper = tmp_path / "wrap.sh"
    wrapper.write_text(f"#!/bin/sh\n{_PYTHON} train.py 0.2\n")
    wrapper.chmod(0o755)
    command = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--", "./wrap.sh"]
    launcher = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    lines = [launcher.stdout.readline() for _ in _RUNNING]

    launcher.terminate()

    assert launcher.communicate(timeout=60)[0].count("saved") == 2
    assert (launcher.returncode, sorted(lines)) == (75, [f"{line}\n" for line in _RUNNING])


@pytest.mark.parametrize(
    ("processes", "of_term", "of_ctrl_c"),
    [
        ([PYTHON, WORKER], [11], [11]),
        ([SHELL, PYTHON, WORKER], [11], [11, 10]),
        ([SHELL, PYTHON, TEE], [11], [11, 10]),
        ([PYTHON, TEE, WORKER], [11], [11]),
        ([SHELL, TEE], [10], [10, 12]),
        ([TEE], [], [12]),
        ([], [], []),
    ],
)
def test_a_signal_is_for_the_training_and_ctrl_c_for_what_waits_for_it(
    processes: list[Process], of_term: list[int], of_ctrl_c: list[int]
) -> None:
    """A signal goes to the training, and Ctrl-C also to the shells that wait for it."""
    answers = [addressees(processes, 10, number) for number in (signal.SIGTERM, signal.SIGINT)]

    assert answers == [of_term, of_ctrl_c]


def test_processes_that_are_each_others_parents_are_no_endless_search() -> None:
    """A cycle of parents, as after the reuse of a pid, does not cause an endless search."""
    found = trainings([Process(1, 2, False), Process(2, 1, True)])

    assert found == [2]


def test_the_processes_of_a_session_are_found_with_what_they_are() -> None:
    """The processes of a session are found with their parents and kinds."""
    from core_sdk._machine.processes._sessions import living

    (own,) = [each for each in living({os.getsid(0)})[os.getsid(0)] if each.pid == os.getpid()]

    assert own == Process(os.getpid(), os.getppid(), is_python=True)
