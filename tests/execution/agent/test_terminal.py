"""On a terminal the script sees a terminal, and its log stays plain text."""

from __future__ import annotations

import os
import signal
import sys
import termios
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interfaces.cli.commands import COMMAND, WriteScript
from processes import TIMEOUT_S, wait_for
from terminals import Person

from core_sdk._home import Home

Run = Callable[..., Person]


@pytest.fixture
def run(home: Home, tmp_path: Path, write_script: WriteScript) -> Iterator[Run]:
    """Runs a Python script by `core-sdk run`, on a terminal."""
    people: list[Person] = []

    def start(source: str, **options: Any) -> Person:
        script = write_script(textwrap.dedent(source))
        people.append(Person(tmp_path, [*COMMAND, "run", "--", sys.executable, str(script)], **options))
        return people[-1]

    yield start
    for person in people:
        person.leaves()


def log(home: Home) -> str:
    return home.trial(1).log_path(1).read_text()


def test_the_script_sees_a_terminal(run: Run, home: Home) -> None:
    """The script's terminal has the size of the person's and shows colours there; the log has plain text."""
    person = run(
        """
        import os, sys
        print(*(os.isatty(number) for number in range(3)), tuple(os.get_terminal_size()))
        print("\\x1b[31mred\\x1b[0m")
        print("also here", file=open("/dev/tty", "w"))
        """
    )

    status = person.waits()

    assert status == 0, person.seen
    assert b"True True True (100, 30)" in person.seen
    assert b"\x1b[31mred\x1b[0m" in person.seen
    assert log(home) == "True True True (100, 30)\nred\nalso here\n"


def test_a_progress_bar_moves_on_the_screen_and_leaves_one_line_in_the_log(run: Run, home: Home) -> None:
    """A progress bar moves on the screen and leaves one line in the log."""
    person = run(
        """
        import sys
        for step in range(50):
            print(f"\\r{step + 1:3d}/50 |{'#' * step}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        print("trained")
        """
    )

    person.waits()

    assert person.seen.count(b"/50 |") == 50
    assert log(home) == f" 50/50 |{'#' * 49}\ntrained\n"


def test_the_window_can_be_resized(run: Run) -> None:
    """When the window is resized, the script gets SIGWINCH and the new size."""
    person = run(
        """
        import os, signal
        sizes = []
        signal.signal(signal.SIGWINCH, lambda *_: sizes.append(os.get_terminal_size()))
        print("started")
        while not sizes: signal.pause()
        print("now", sizes[-1].columns, sizes[-1].lines)
        """
    )
    person.reads("started")

    termios.tcsetwinsize(person.terminal, (40, 120))

    person.reads("now 120 40")
    assert person.waits() == 0


def test_the_script_can_be_answered(run: Run, home: Home) -> None:
    """The script reads what the person types, which is shown once, by the person's own terminal."""
    person = run("name = input('Name? ')\nprint('hello', name)\nimport sys; print(repr(sys.stdin.read()))")
    person.reads("Name? ")

    person.types("Ada\n")
    person.reads("hello Ada")
    person.types("\x04")

    assert person.waits() == 0
    assert person.seen.count(b"Ada") == 2
    assert person.seen.count(b"''") == 1
    assert log(home) == "Name? hello Ada\n''\n"


def test_the_script_can_be_debugged(run: Run) -> None:
    """A script can be debugged with pdb at the terminal."""
    person = run("value = 6\nbreakpoint()\nprint('went on')")
    person.reads("(Pdb) ")

    person.types("p value * 7\n")
    person.reads("42")
    person.types("c\n")

    assert person.waits() == 0
    assert b"went on" in person.seen


def test_ctrl_c_reaches_the_script(run: Run) -> None:
    """Ctrl-C reaches the script, which can clean up, and the terminal's mode is restored."""
    person = run(
        """
        import time
        try:
            print("started")
            time.sleep(600)
        except KeyboardInterrupt:
            print("cleaned up")
            raise SystemExit(5)
        """
    )
    person.reads("started")
    mode = termios.tcgetattr(person.terminal)

    person.types("\x03")

    assert person.waits() == 5
    assert b"cleaned up" in person.seen
    assert mode == person.mode


def test_a_command_killed_on_a_terminal_leaves_it_as_it_was(run: Run, home: Home, tmp_path: Path) -> None:
    """A killed command leaves the terminal's mode as it was; the script goes on, and the log is complete."""
    person = run(
        """
        import pathlib, time
        print("started")
        while not pathlib.Path("go").exists(): time.sleep(0.01)
        for line in range(10_000): print("line", line)
        """
    )
    person.reads("started")

    person.process.kill()
    person.process.wait()
    mode = termios.tcgetattr(person.terminal)
    (tmp_path / "go").touch()
    wait_for(lambda: home.trial(1).running_attempt() is None)

    exit_record = home.trial(1).read_exit(1)
    assert mode == person.mode
    assert exit_record is not None
    assert exit_record.code == 0
    assert log(home).splitlines() == ["started", *(f"line {line}" for line in range(10_000))]


def test_a_terminal_that_takes_nothing_holds_up_nothing(run: Run, home: Home) -> None:
    """Ctrl-S, or a laptop that sleeps: the log is whole, and a stop ends the command."""
    person = run("print('started')\nfor line in range(100_000): print('line', line)")
    person.reads("started")

    wait_for(lambda: home.trial(1).running_attempt() is None)
    person.process.send_signal(signal.SIGTERM)

    assert person.process.wait(TIMEOUT_S) == 0
    assert log(home).splitlines()[-1] == "line 99999"
    assert len(log(home).splitlines()) == 100_001


def test_output_into_a_pipe_is_no_terminal(run: Run, home: Home) -> None:
    """If stdout is a pipe, the script sees no terminal, even if stderr is one."""
    read, write = os.pipe()
    person = run("import sys; print(sys.stdout.isatty(), sys.stderr.isatty(), '\\r\\x1b[31m')", stdout=write)
    os.close(write)

    with os.fdopen(read, "rb") as pipe:
        output = pipe.read()

    assert person.waits() == 0
    assert output == b"False False \r\x1b[31m\n"
    assert home.trial(1).log_path(1).read_bytes() == output
