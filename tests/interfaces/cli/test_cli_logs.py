"""`core-sdk trial logs` gives the kept output back, and follows it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from interfaces.cli.commands import COMMAND, Cli, StartCli, WriteScript
from interfaces.cli.recorded import new_attempt, new_trial
from terminals import Person

from core_sdk._execution.steering import trials
from core_sdk._home import Home, TrialFolder


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial of three attempts; the second kept no output."""
    folder = new_trial(home)
    for _ in range(3):
        new_attempt(folder).end()
    folder.log_path(1).write_bytes(b"one\n")
    folder.log_path(3).write_bytes(b"".join(b"line %d\n" % number for number in range(50_000)) + b"\xff torn")
    return folder


def test_all_attempts_are_printed_in_order(folder: TrialFolder, cli: Cli) -> None:
    """`trial logs` prints the output of all attempts in order, byte by byte, or one attempt's output."""
    everything = cli("trial", "logs", "1")
    first = cli("trial", "logs", "1", "--attempt", "1")

    lines = everything.output.splitlines()
    assert lines[:2] == ["one", "line 0"]
    assert lines[-1].encode(errors="surrogateescape") == b"\xff torn"
    assert len(lines) == 50_002
    assert first.output == "one\n"


@pytest.mark.parametrize(
    ("num_lines", "expected"),
    [
        ("1", ["line 49999"]),
        ("40000", [f"line {number}" for number in range(10_000, 50_000)]),
        ("99999", [f"line {number}" for number in range(50_000)]),
    ],
)
def test_the_tail_is_the_last_lines(folder: TrialFolder, cli: Cli, num_lines: str, expected: list[str]) -> None:
    """--tail prints the last lines of a log of any length."""
    folder.log_path(3).write_bytes(b"".join(b"line %d\n" % number for number in range(50_000)))

    ended = cli("trial", "logs", "1", "--tail", num_lines)

    assert ended.output.splitlines() == expected


def test_the_tail_of_a_progress_bar_is_one_state(folder: TrialFolder, cli: Cli) -> None:
    """With --tail a line is what a terminal shows of it, with and without --json; --level chooses before it."""
    bar = b"".join(b"\r%3d%%" % percent for percent in range(101))
    folder.log_path(3).write_bytes(b"begin\n" + bar + b"\r\nERROR once\n[rank=1] " + bar)

    texts = [cli("trial", "logs", "1", "--tail", "3", *more).output for more in ((), ("--level", "error"))]
    as_json = cli("trial", "logs", "1", "--tail", "3", "--json").output.splitlines()

    assert texts == ["100%\nERROR once\n[rank=1] 100%", "ERROR once\n"]
    assert [json.loads(line)["text"] for line in as_json] == ["100%", "ERROR once", "100%"]


def test_a_terminal_is_not_told_what_to_do(home: Home, folder: TrialFolder, tmp_path: Path) -> None:
    """On a terminal, output comes without titles and resets, and CSV without control characters."""
    folder.log_path(3).write_bytes(b"\x1b]0;a title\x07\x1bc\x1b[2J\x1b[31mred\x1b[0m end\n")
    trials.describe(home, 1, name="a\u202eb\x1bc")
    shown = []
    for command in ("trial logs 1", "experiment logs digits", "trial list --csv"):
        person = Person(tmp_path, [*COMMAND, *command.split()])
        try:
            assert person.waits() == 0
            shown.append(person.seen)
        finally:
            person.leaves()

    assert shown[0].endswith(b"\r\n\x1b[31mred\x1b[0m end\r\n")
    assert shown[1].endswith(b"\r\n[trial=1] \x1b[31mred\x1b[0m end\r\n")
    assert b"a\\u202eb\\x1bc" in shown[2]


def test_output_that_was_not_kept_is_said_to_be_so(home: Home, folder: TrialFolder, cli: Cli) -> None:
    """An error says that there is no output of a trial or attempt, and how to keep it."""
    new_attempt(new_trial(home)).end()

    of_trial = cli("trial", "logs", "2")
    of_attempt = cli("trial", "logs", "1", "--attempt", "2")

    assert of_trial.status == of_attempt.status == 1
    assert "core-sdk run" in of_trial.errors
    assert "attempt 2 of trial 1" in of_attempt.errors


def test_following_ends_with_the_attempt(
    home: Home, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """--follow prints earlier output, new output and the last line, and ends with the attempt."""
    script = write_script(
        """
        import pathlib, time
        print("started")
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        print("last words", end="")
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")
    follower = start_cli("trial", "logs", "1", "-f")
    follower.read_until("started")

    (tmp_path / "go").touch()
    status, output, errors = follower.wait()
    run.wait()

    assert (status, output, errors) == (0, "last words", "")
