"""What signals to the launcher do: ranks hear of them, have their grace, and the exit status says how it went."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from launches import Launch, RunLaunch, StartLaunch, WarmLaunchers, live_processes
from processes import is_living, wait_for
from promises import promise

_PROLOGUE = """\
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
def say(text):
    print(text, flush=True)
def wait():
    say("ready")
    time.sleep(120)
def on(*numbers, do):
    for number in numbers:
        signal.signal(number, lambda number, frame: do())
"""
_ALL_READY = ("[rank=0] ready", "[rank=1] ready")

_STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]


@pytest.mark.parametrize("number", _STOPS)
def test_a_stop_after_which_all_ranks_end_well_is_to_be_continued(
    number: signal.Signals, start_launch: StartLaunch
) -> None:
    """If all ranks end well after a stop, the exit code is 75."""
    launch = start_launch(_PROLOGUE + f"on({int(number)}, do=lambda: (say('saved'), sys.exit(0)))\nwait()")
    launch.read_until(*_ALL_READY)

    launch.send(number)

    ended = launch.wait()
    assert ended.code == 75
    assert {"[rank=0] saved", "[rank=1] saved"} <= set(ended.stdout.splitlines())
    assert ended.last_words == "[core-sdk] stopped as asked, to be continued; exit code 75"


@pytest.mark.parametrize("number", _STOPS)
def test_ranks_that_die_of_the_signal_give_its_status(number: signal.Signals, start_launch: StartLaunch) -> None:
    """If ranks die of the signal, the exit code is 128 + N and no rank is blamed."""
    launch = start_launch(_PROLOGUE + "wait()")
    launch.read_until(*_ALL_READY)

    launch.send(number)

    ended = launch.wait()
    words = "cancelled by SIGINT (Ctrl-C)" if number == signal.SIGINT else f"ranks 0, 1 died of {number.name}"
    assert ended.code == 128 + number
    assert "failed first" not in ended.stderr
    assert words in ended.stderr


def test_a_stop_that_a_rank_has_acknowledged_is_to_be_continued_without_a_signal(run_launch: RunLaunch) -> None:
    """If a rank has acknowledged a stop, the exit code is 75 even without a signal."""
    source = _PROLOGUE + "if rank == 0: open(os.path.join(os.environ['CORE_SDK_LAUNCH_DIR'], 'stopped'), 'w').close()"

    ended = run_launch(source)

    assert ended.code == 75


def test_a_signal_reaches_the_ranks_and_not_their_children(start_launch: StartLaunch, launch_directory: Path) -> None:
    """A stop reaches the ranks and not their data-loader workers."""
    source = """
source = "import signal, time; signal.signal(15, lambda *_: open('hit', 'w').close()); print('up'); time.sleep(120)"
child = subprocess.Popen([sys.executable, '-uc', source], stdout=subprocess.PIPE)
child.stdout.readline()
def stop():
    time.sleep(0.5)
    say(f"child lives: {child.poll() is None and not os.path.exists('hit')}")
    child.kill()
    os._exit(0)
on(15, do=stop)
wait()
"""
    launch = start_launch(_PROLOGUE + source)
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert ended.stdout.count("child lives: True") == 2
    assert live_processes(launch_directory) == []


def test_ranks_have_longer_than_torch_would_give_them(
    start_launch: StartLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own shutdown timeout does not shorten the grace."""
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "0")
    launch = start_launch(_PROLOGUE + "on(15, do=lambda: (time.sleep(2), say('saved'), sys.exit(0)))\nwait()")
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGTERM)

    assert launch.wait().code == 75


def test_the_grace_ends(start_launch: StartLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    """After CORE_SDK_GRACE_S the ranks are killed, and the message says which and where they were."""
    monkeypatch.setenv("CORE_SDK_GRACE_S", "0.5")
    source = (
        "on(15, do=lambda: rank or sys.exit(0))\ndef train():\n    while True: time.sleep(1)\nsay('ready')\ntrain()"
    )
    launch = start_launch(_PROLOGUE + source)
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    reason = "rank 1 had not ended in the grace after SIGTERM (CORE_SDK_GRACE_S=0.5): killed; exit code 137"
    assert ended.code == 137
    assert f"[core-sdk] {reason}" in ended.stderr.splitlines()
    assert re.fullmatch(r"\[core-sdk\] rank 1 stood in train \(\S+/train.py, line 13\)", ended.last_words)
    assert "[rank=1] Current thread" in ended.stderr


def test_each_stop_says_what_it_waits_for(start_launch: StartLaunch) -> None:
    """Each signal prints at once which ranks are waited for and how long."""
    launch = start_launch(
        _PROLOGUE + "on(15, 2, do=lambda: rank or (say('ends'), os._exit(0)))\nwait(); wait(); wait()"
    )
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGTERM)
    launch.read_until("[rank=0] ends")
    for number in (signal.SIGTERM, signal.SIGINT):
        said = launch.errors
        launch.send(number)
        wait_for(lambda: launch.errors != said)  # noqa: B023 - it is called at once
    launch.send(signal.SIGINT)

    first, *_, last, _ = launch.wait().stderr.splitlines()
    assert first.startswith("[core-sdk] stopping after SIGTERM: waiting up to 3600 s (CORE_SDK_GRACE_S=3600) for rank")
    assert re.search(r"waiting up to \S+ s \(CORE_SDK_GRACE_S=3600\) for rank 1 to end; Ctrl-C again kills them$", last)


@pytest.mark.parametrize(("overrides", "grace"), [((), "3600.0"), (("--shutdown-timeout=7",), "7")])
def test_ranks_are_told_their_grace(run_launch: RunLaunch, overrides: tuple[str, ...], grace: str) -> None:
    """Ranks find the grace in CORE_SDK_GRACE_S."""
    ended = run_launch("import os; print(os.environ['CORE_SDK_GRACE_S'])", num_ranks=1, overrides=overrides)

    assert ended.stdout == f"[rank=0] {grace}\n"


def test_torchruns_own_option_for_the_grace_counts(start_launch: StartLaunch) -> None:
    """--shutdown-timeout sets the grace of a launch."""
    launch = start_launch(_PROLOGUE + "on(15, do=lambda: None)\nwait(); wait()", overrides=["--shutdown-timeout=1"])
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGTERM)

    assert launch.wait().code == 137


def test_a_second_interrupt_kills_at_once(start_launch: StartLaunch) -> None:
    """The first one, which the ranks may take time for, is Ctrl-C; the second is impatience."""
    launch = start_launch(_PROLOGUE + "on(2, do=lambda: say('saving'))\nwait(); wait()")
    launch.read_until(*_ALL_READY)
    launch.send(signal.SIGINT)
    launch.read_until("[rank=0] saving", "[rank=1] saving")

    launch.send(signal.SIGINT)

    ended = launch.wait()
    assert ended.code == 130
    assert "killed by a second SIGINT" in ended.stderr


def test_a_second_interrupt_of_ranks_that_died_of_the_first_names_them(start_launch: StartLaunch) -> None:
    """A second Ctrl-C, when ranks have died of the first, reports only the first."""
    launch = start_launch(_PROLOGUE + "on(2, do=lambda: os._exit(130))\nwait()", overrides=["--monitor-interval=2"])
    launch.read_until(*_ALL_READY)
    ranks = [each.pid for each in psutil.Process(launch.pid).children(recursive=True) if "train.py" in each.cmdline()]
    assert len(ranks) == 2
    launch.send(signal.SIGINT)
    wait_for(lambda: not any(map(psutil.pid_exists, ranks)))

    launch.send(signal.SIGINT)

    ended = launch.wait()
    words = "[core-sdk] cancelled by SIGINT (Ctrl-C), of which ranks 0, 1 died; exit code 130"
    assert (ended.code, ended.last_words) == (130, words)


def test_a_rank_that_fails_while_stopping_is_a_failure(start_launch: StartLaunch) -> None:
    """A rank that fails while it saves is a failure."""
    source = "def save():\n    if rank == 1: raise OSError('no space')\n    sys.exit(0)\non(15, do=save)\nwait()"
    launch = start_launch(_PROLOGUE + source)
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert (ended.failure.rank, ended.failure.cause, ended.code) == (1, "raised OSError: no space", 1)


def test_a_rank_that_saves_is_left_in_peace_when_others_die_of_the_signal(start_launch: StartLaunch) -> None:
    """A rank that saves keeps its grace when others die of the signal."""
    source = "if rank == 0: on(15, do=lambda: (time.sleep(3), say('saved'), sys.exit(0)))\nwait()"
    launch = start_launch(_PROLOGUE + source)
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert "[rank=0] saved" in ended.stdout
    assert ended.code == 143


def test_a_stop_after_a_failure_does_not_lengthen_the_end(start_launch: StartLaunch, launch_directory: Path) -> None:
    """A stop after a failure neither delays the end nor hides the failure."""
    source = """
if rank == 1:
    while not os.path.exists("listens"):
        time.sleep(0.01)
    sys.exit(3)
on(15, do=lambda: open("told", "w").close())
open("listens", "w").close()
wait(); wait()
"""
    launch = start_launch(_PROLOGUE + source)
    wait_for((launch_directory / "told").exists)

    start_s = time.monotonic()
    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert time.monotonic() - start_s < 10
    assert (ended.failure.rank, ended.code) == (1, 3)


def test_other_signals_are_between_their_sender_and_the_script(start_launch: StartLaunch) -> None:
    """SIGUSR1 and SIGUSR2 are forwarded and are no stop."""
    launch = start_launch(_PROLOGUE + "on(10, 12, do=lambda: (say('heard'), sys.exit(0)))\nwait()")
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGUSR1)

    ended = launch.wait()
    assert ended.code == 0
    assert ended.stdout.count("heard") == 2


def test_a_hang_up_is_no_stop(start_launch: StartLaunch) -> None:
    """SIGHUP of the launcher's terminal is not forwarded to the ranks."""
    launch = start_launch(_PROLOGUE + "on(1, 15, do=lambda: (say('heard'), sys.exit(0)))\nwait()")
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGHUP)
    launch.send(signal.SIGUSR1)  # comes after it, and ends them

    ended = launch.wait()
    assert "heard" not in ended.stdout


def test_sigusr1_is_a_stop_under_slurm(start_launch: StartLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Slurm, SIGUSR1 is a stop, which reaches the ranks as SIGTERM."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    launch = start_launch(_PROLOGUE + "on(15, do=lambda: (say('saved'), sys.exit(0)))\nwait()")
    launch.read_until(*_ALL_READY)

    launch.send(signal.SIGUSR1)

    ended = launch.wait()
    assert ended.code == 75
    assert ended.stdout.count("saved") == 2


@promise("stop-under-slurm")
def test_sigusr1_to_all_processes_of_a_step_harms_none_of_them(
    start_launch: StartLaunch, launch_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's way of sending it; a data-loader worker, which has no handler, lives on while its rank saves."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    launch = start_launch(
        _PROLOGUE
        + """
worker = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
on(15, do=lambda: (worker.stdin.close(), say(f"the worker ended with {worker.wait()}"), sys.exit(0)))
wait()
"""
    )
    launch.read_until(*_ALL_READY)

    for pid in live_processes(launch_directory):
        with contextlib.suppress(ProcessLookupError):  # the first signal is a stop: ranks may have ended meanwhile
            os.kill(pid, signal.SIGUSR1)

    ended = launch.wait()
    assert ended.code == 75
    assert ended.stdout.count("the worker ended with 0") == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_ranks_are_being_started_reaches_all(number: signal.Signals, run_launch: RunLaunch) -> None:
    """The first rank sends it as soon as it lives, and the last one may not have been started."""
    overrides = ["--", "sh", "-c", f'[ "$RANK" != 0 ] || kill -{int(number)} $PPID; exec sleep 120']

    ended = run_launch("", num_ranks=8, overrides=overrides)

    assert ended.code == 128 + number


def test_a_stop_at_the_beginning_of_a_launch_is_not_lost(start_launch: StartLaunch, launch_directory: Path) -> None:
    """A stop counts whether it comes before the ranks are started, as nearly always, or just after that."""
    launch = start_launch(_PROLOGUE + "wait()")

    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert ended.code in (143, -signal.SIGTERM)  # before it could listen, it died of the signal itself
    assert live_processes(launch_directory) == []


def test_a_stop_while_nodes_gather_ends_the_launcher_at_once(start_launch: StartLaunch) -> None:
    """A stop while the launcher waits for other nodes ends it at once."""
    overrides = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=lonely"]
    launch = start_launch(_PROLOGUE + "wait()", overrides=overrides)
    wait_for(lambda: _listens(launch.pid))

    start_s = time.monotonic()
    launch.send(signal.SIGTERM)

    ended = launch.wait()
    assert time.monotonic() - start_s < 5
    assert (ended.code, "SIGTERM came before the ranks were started" in ended.stderr) == (143, True)


def _listens(pid: int) -> bool:
    return any(link.status == psutil.CONN_LISTEN for link in psutil.Process(pid).net_connections())


def test_a_rank_can_be_told_by_its_own_pid(start_launch: StartLaunch) -> None:
    """A signal that is sent to one rank's pid is not a stop, and the rank has failed if it dies."""
    launch = start_launch(_PROLOGUE + "say(f'pid {os.getpid()}')\nwait()")
    launch.read_until(*_ALL_READY)
    pid = next(line.split()[-1] for line in launch.output.splitlines() if line.startswith("[rank=1] pid"))

    os.kill(int(pid), signal.SIGTERM)

    ended = launch.wait()
    assert (ended.failure.rank, ended.failure.cause, ended.code) == (1, "was killed by SIGTERM (Terminated)", 143)


_TALKS = """
import os, signal
wishes = []
signal.signal(signal.SIGTERM, lambda *_: wishes.append("stop"))
open(f"up.{os.environ['RANK']}", "w").close()
while not wishes:
    print("x" * 1000)
open(f"saved.{os.environ['RANK']}", "w").close()
"""


class StartUnread(Protocol):
    def __call__(self, source: str, *, is_stderr_read: bool = True) -> Launch: ...


@pytest.fixture
def start_unread(launch_directory: Path, tmp_path: Path, warm_launchers: WarmLaunchers) -> Iterator[StartUnread]:
    """Returns a function that launches a script with a full pipe as its output."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)

    def start(source: str, *, is_stderr_read: bool = True) -> Launch:
        stderr = None if is_stderr_read else pipe
        launch = warm_launchers.start(launch_directory, source, (), 2, stdout=pipe, stderr=stderr)
        wait_for(lambda: not select.select([], [reader], [], 0)[1])
        return launch

    yield start
    os.close(reader)


@pytest.mark.parametrize("is_stderr_read", [True, False])
@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGTERM],
        [signal.SIGTERM, signal.SIGINT, signal.SIGINT],
    ],
)
def test_a_stop_is_heard_though_nobody_reads_the_output(
    signals: list[signal.Signals], is_stderr_read: bool, launch_directory: Path, start_unread: StartUnread
) -> None:
    """Ranks that block in `print` because nobody reads still save and end after a stop, or are killed by a second."""
    is_killed = len(signals) > 1
    source = _TALKS.replace("while not wishes", "while True") if is_killed else _TALKS
    launch = start_unread(source, is_stderr_read=is_stderr_read)
    wait_for(lambda: len(list(launch_directory.glob("up.*"))) == 2)

    for number in signals:
        launch.send(number)
        time.sleep(0.1)  # two of a kind at once are one
    if is_killed:
        while is_living(launch.pid):  # both of the last may have come at once on a busy machine
            launch.send(signals[-1])
            time.sleep(0.5)

    assert launch.wait_for_code() == (130 if is_killed else 75)
    assert is_killed or len(list(launch_directory.glob("saved.*"))) == 2
    assert live_processes(launch_directory) == []


def test_a_stop_ends_a_launcher_that_waits_for_its_reader_only(
    launch_directory: Path, start_unread: StartUnread
) -> None:
    """A stop ends a launcher that only waits for a reader, with its ranks' exit code."""
    source = """
        import os, sys
        open(os.path.join(os.environ["CORE_SDK_LAUNCH_DIR"], "completed"), "w").close()
        sys.stdout.write("x" * 100_000)
    """
    launch = start_unread(source)
    wait_for(lambda: live_processes(launch_directory) == [launch.pid])

    launch.send(signal.SIGTERM)

    assert launch.wait_for_code() == 0
