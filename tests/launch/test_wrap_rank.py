"""`launch.wrap_rank`: one command, whose lines begin with its rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from processes import wait_for


def _wrap(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "launch.wrap_rank", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["3", "--"], {}),
        (["3"], {}),
        (["--no-redirect-stdio", "3", "--"], {}),
        (["HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK", "--"], {"PMI_RANK": "3"}),
    ],
)
def test_lines_begin_with_the_rank(arguments: list[str], variables: dict[str, str]) -> None:
    """Given as a number, or by the first variable that is set; bytes that are no text pass, and the status is kept."""
    ended = _wrap(*arguments, "sh", "-c", r"printf 'a\nb\r\nc\377'; echo error >&2; exit 7", **variables)

    assert (ended.returncode, ended.stdout) == (7, b"[rank=3] a\n[rank=3] b\r\n[rank=3] c\xff\n")
    assert ended.stderr == b"[rank=3] error\n"


def test_a_command_killed_by_a_signal_gives_a_shells_status() -> None:
    """A command that is killed by signal N gives the status 128 + N."""
    assert _wrap("0", "sh", "-c", "kill -9 $$").returncode == 137


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["NO_RANK,NOR_THIS", "--", "true"], 1, b"NO_RANK,NOR_THIS is neither a number"),
        (["0"], 2, b"a command is missing"),
        ([], 2, b"RANK"),
        (["0", "no-such-program"], 127, b"'no-such-program'"),
    ],
)
def test_what_cannot_be_started_is_refused(arguments: list[str], code: int, words: bytes) -> None:
    """A bad command line is refused in one line with a shell's status."""
    ended = _wrap(*arguments)

    assert ended.returncode == code
    assert ended.stderr.startswith(b"[core-sdk] ")
    assert words in ended.stderr


def test_a_signal_is_handed_on_to_the_command() -> None:
    """A signal is forwarded to the command, whose status is returned."""
    source = "import signal, time; signal.signal(15, lambda *_: exit(5)); print('up', flush=True); time.sleep(60)"
    command = [sys.executable, "-m", "launch.wrap_rank", "1", "--", sys.executable, "-c", source]
    wrapper = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == b"[rank=1] up\n"

    wrapper.send_signal(signal.SIGTERM)

    _, errors = wrapper.communicate(timeout=60)
    assert wrapper.returncode == 5
    assert errors == b"[core-sdk] SIGTERM was handed on: waiting for rank 1 to end\n"


def test_a_signal_to_the_whole_group_comes_to_the_command_once(tmp_path: Path) -> None:
    """A signal to the whole process group reaches the command once."""
    source = """
        import signal, sys
        def note(number, frame):
            with open(sys.argv[1], "a") as file:
                print(signal.Signals(number).name, file=file)
        for number in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, note)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        print("up", flush=True)
        while True:
            signal.pause()
    """
    noted = tmp_path / "noted"
    command = [sys.executable, "-m", "launch.wrap_rank", "1", "--", sys.executable, "-c", textwrap.dedent(source)]
    wrapper = subprocess.Popen([*command, str(noted)], stdout=subprocess.PIPE, start_new_session=True)
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == b"[rank=1] up\n"
    (script,) = (each for each in psutil.Process(wrapper.pid).children() if str(noted) in each.cmdline())

    wrapper.send_signal(signal.SIGSTOP)
    os.killpg(wrapper.pid, signal.SIGINT)
    script.send_signal(signal.SIGUSR1)
    wait_for(lambda: noted.exists() and "SIGUSR1" in noted.read_text())
    wrapper.send_signal(signal.SIGCONT)
    wait_for(lambda: "SIGINT" in noted.read_text())
    wrapper.send_signal(signal.SIGTERM)
    wrapper.communicate(timeout=60)

    assert (wrapper.returncode, noted.read_text().split()) == (5, ["SIGUSR1", "SIGINT"])


def test_a_killed_wrapper_leaves_nothing() -> None:
    """A killed wrapper leaves neither the command nor its children."""
    command = [sys.executable, "-m", "launch.wrap_rank", "1", "--", "sh", "-c", "sleep 600 & echo up; wait"]
    wrapper = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == b"[rank=1] up\n"
    process = psutil.Process(wrapper.pid)
    wait_for(lambda: {"sh", "sleep"} <= {child.name() for child in process.children(recursive=True)})
    below = process.children(recursive=True)

    wrapper.kill()

    wrapper.communicate(timeout=60)
    wait_for(lambda: not any(process.is_running() for process in below))
