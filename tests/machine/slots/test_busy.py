"""GPUs that programs without a slot fill, and that `--avoid-busy` leaves alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_sdk._machine.slots import Machine, SlotDirectory, Ticket, obstacles_of

_HOME = Path("/home/of/one")


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as running:
        yield running
        running.kill()


def test_a_filled_gpu_is_given_when_its_program_has_ended(program: subprocess.Popen[bytes]) -> None:
    """A GPU that a program fills is not given while the program lives; who waits for it is told."""
    machine = Machine(2, ("GPU-a", "GPU-b"), lambda: {"GPU-a"} if program.poll() is None else set())
    directory = SlotDirectory()

    first = Ticket(directory, _HOME, 1, machine.usable())
    second = Ticket(directory, _HOME, 1, machine.usable())
    told, before = obstacles_of(second, machine), second.held
    program.kill()
    program.wait()
    second.take(1, machine.usable())

    assert (first.held, before, second.held) == (["GPU-b"], (), ["GPU-a"])
    assert told.startswith("waiting for 1 of 1 slots: a trial of /home/of/one has GPU-b since ")
    assert told.endswith("; programs without a slot fill GPU-a")


def test_a_gpu_that_a_trial_fills_is_no_busy_one() -> None:
    """Whoever waits for a GPU that a trial fills is told of the trial, and of no program without a slot."""
    machine = Machine(1, ("GPU-a",))
    directory = SlotDirectory()
    holding = Ticket(directory, _HOME, 1, machine.usable())
    filled = Machine(1, ("GPU-a",), lambda: {"GPU-a"})

    waiting = Ticket(directory, _HOME, 1, filled.usable())

    assert obstacles_of(waiting, filled).startswith("waiting for 1 of 1 slots: a trial of /home/of/one has GPU-a since")
    assert "without a slot" not in obstacles_of(waiting, filled) and holding.held == ["GPU-a"]
