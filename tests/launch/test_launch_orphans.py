"""Nothing is left of a launch: not when its launcher is killed, and not when it ends by itself."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launches import Launch, RunLaunch, StartLaunch, live_processes
from processes import wait_for

_WITHIN_S = 5.0

# Each rank with children of all sorts, none of which dies with it.
_FAMILY = """\
import multiprocessing, os, signal, subprocess, sys, time
def ignore_all():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
def work():
    ignore_all()
    time.sleep(120)
ignore_all()
context = multiprocessing.get_context("fork")
for _ in range(2):
    context.Process(target=work).start()
subprocess.Popen(["sleep", "120"])
subprocess.Popen(["sleep", "120"], start_new_session=True)
subprocess.Popen(["sleep", "120"], env={})
print("ready", flush=True)
time.sleep(120)
"""
_ALL_READY = ("[rank=0] ready", "[rank=1] ready")


@pytest.fixture(autouse=True)
def private_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short private directory for temporary files, so that the launch's own can be found."""
    with tempfile.TemporaryDirectory(prefix="launch-", dir="/tmp") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


def _launch_family(start_launch: StartLaunch, directory: Path) -> Launch:
    launch = start_launch(_FAMILY)
    launch.read_until(*_ALL_READY)
    assert len(live_processes(directory)) == 1 + 2 * 6
    return launch


def _assert_nothing_is_left(launch_directory: Path, private_tmp: Path) -> None:
    wait_for(lambda: live_processes(launch_directory) == [], _WITHIN_S)
    wait_for(lambda: list(private_tmp.glob("core-sdk-launch-*")) == [], _WITHIN_S)


def test_a_killed_launcher_leaves_no_process(
    start_launch: StartLaunch, launch_directory: Path, private_tmp: Path
) -> None:
    """A killed launcher leaves neither ranks nor their children, whatever signals they ignore."""
    launch = _launch_family(start_launch, launch_directory)

    launch.kill()

    _assert_nothing_is_left(launch_directory, private_tmp)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_the_guardian_survives_what_is_sent_to_all(
    number: signal.Signals, start_launch: StartLaunch, launch_directory: Path, private_tmp: Path
) -> None:
    """The guardian survives signals that are sent to all processes, and cleans up afterwards."""
    launch = start_launch(
        "import signal, time\nsignal.pthread_sigmask(0, range(1, 65))\nprint('ready')\ntime.sleep(120)"
    )
    launch.read_until(*_ALL_READY)
    (guardian,) = _guardians(private_tmp)
    os.kill(guardian, number)
    os.killpg(launch.pid, number)

    os.killpg(launch.pid, signal.SIGKILL)

    _assert_nothing_is_left(launch_directory, private_tmp)


def test_a_launcher_killed_while_it_starts_ranks_leaves_none(
    run_launch: RunLaunch, launch_directory: Path, private_tmp: Path
) -> None:
    """A launcher that is killed while it starts ranks leaves none of them."""
    overrides = ["--", "sh", "-c", '[ "$RANK" != 0 ] || kill -KILL $PPID; exec sleep 120']

    ended = run_launch("", num_ranks=8, overrides=overrides)

    assert ended.code == -signal.SIGKILL
    _assert_nothing_is_left(launch_directory, private_tmp)


def test_a_launch_inside_a_launch_goes_with_it(
    start_launch: StartLaunch, launch_directory: Path, private_tmp: Path
) -> None:
    """A launch within a launch ends with it."""
    source = f"""
        import subprocess
        open("inner.py", "w").write("import time; print('ready', flush=True); time.sleep(120)")
        command = [{sys.executable!r}, "-m", "launch.torch_distributed", "--nproc-per-node=1", "--", "inner.py"]
        subprocess.run(command)
    """
    launch = start_launch(source, num_ranks=1)
    launch.read_until("[rank=0] [rank=0] ready")

    launch.kill()

    _assert_nothing_is_left(launch_directory, private_tmp)


def test_workers_of_a_data_loader_go_with_a_killed_launcher(
    start_launch: StartLaunch, launch_directory: Path, private_tmp: Path
) -> None:
    """Workers of a torch data loader end with a killed launcher."""
    source = """
        import time
        from torch.utils.data import DataLoader
        if __name__ == "__main__":
            batches = iter(DataLoader(range(1000), num_workers=2, multiprocessing_context="fork"))
            next(batches)
            print("ready", flush=True)
            time.sleep(120)
    """
    launch = start_launch(source, num_ranks=1)
    launch.read_until("[rank=0] ready")

    launch.kill()

    _assert_nothing_is_left(launch_directory, private_tmp)


@pytest.mark.parametrize("status", [0, 3])
def test_what_ranks_leave_in_their_groups_ends_with_the_launch(
    status: int, run_launch: RunLaunch, launch_directory: Path, private_tmp: Path
) -> None:
    """Children that ranks leave in their process groups are killed at the end of the launch."""
    source = f"""
        import os, subprocess, sys
        subprocess.Popen(["sleep", "120"])
        print("last words")
        sys.exit({status} if os.environ["RANK"] == "1" else 0)
    """

    ended = run_launch(source)

    assert ended.code == status
    assert ended.stdout.count("last words") == 2
    _assert_nothing_is_left(launch_directory, private_tmp)
    assert _guardians(private_tmp) == []


def test_processes_that_chose_a_session_of_their_own_outlive_a_good_end(
    run_launch: RunLaunch, launch_directory: Path
) -> None:
    """A process in a session of its own survives a launch that ended well."""
    source = """
        import subprocess
        subprocess.Popen(["sleep", "120"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    """

    ended = run_launch(source, num_ranks=1)

    assert ended.code == 0
    assert len(live_processes(launch_directory)) == 1


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(3)"])
def test_processes_in_sessions_of_their_own_end_with_a_launch_that_fails(
    run_launch: RunLaunch, launch_directory: Path, end: str
) -> None:
    """When a launch fails, processes that ranks started in sessions of their own are ended too."""
    source = f"""
        import os, signal, subprocess, sys, time
        subprocess.Popen(["sleep", "120"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if os.environ["RANK"] == "0":
            {end}
        time.sleep(120)
    """

    ended = run_launch(source)

    assert ended.code != 0
    wait_for(lambda: live_processes(launch_directory) == [], _WITHIN_S)


def _guardians(private_tmp: Path) -> list[int]:
    """Returns the running guardians of launches whose directories exist, by their arguments."""
    import psutil

    processes = psutil.process_iter(["cmdline"])
    return [p.pid for p in processes if any(str(private_tmp) in argument for argument in p.info["cmdline"] or [])]
