"""Trainings in the shapes of public repositories end as if they had never been killed, stopped or damaged."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from codebases import shapes
from warm import WarmProgram, warm_program

from core_sdk.client import Tracker

Figures = list[tuple[str, int | None, Any]]


@pytest.fixture(scope="module")
def program() -> Iterator[WarmProgram]:
    # The optimizers of torch import torch._dynamo at their first step.
    modules = ("torch._dynamo", "core_sdk.core._init", "core_sdk.loop._state", "core_sdk.loop._loading")
    with warm_program("codebases.shapes:main", *modules) as program:
        yield program


class Training:
    """A training of a shape, each start of which goes on with it."""

    def __init__(self, program: WarmProgram, shape: str, directory: Path) -> None:
        self._program = program
        self._shape = shape
        self._directory = directory
        directory.mkdir()
        self.home = directory / "home"

    def run(self, *arguments: object) -> int:
        """Runs it to its end, and returns the exit status."""
        variables = {**os.environ, "CORE_SDK_HOME": str(self.home), "CORE_SDK_JOB_ID": "job"}
        process = self._program.start(
            ["shapes.py", self._shape, *map(str, arguments)],
            directory=self._directory,
            output_directory=self._directory,
            variables=variables,
        )
        return process.wait()

    def figures(self) -> Figures:
        """Returns group, step and metrics of all visible reports."""
        # A start that was killed while it took the number 1 has left no trial.
        (trial,) = Tracker(self.home).list_trials()
        groups = ("training", "validation", "text")
        return [
            (each.group, each.steps_completed, each.metrics) for group in groups for each in trial.iter_metrics(group)
        ]


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_a_training_ends_as_if_undisturbed(shape: str, program: WarmProgram, tmp_path: Path) -> None:
    """Killed, stopped, and with a damaged checkpoint, a training has the figures of an undisturbed one."""
    undisturbed = Training(program, shape, tmp_path / "undisturbed")
    assert undisturbed.run() == 0
    disturbed = Training(program, shape, tmp_path / "disturbed")

    statuses = [disturbed.run(signal.SIGKILL.value, 2), disturbed.run(signal.SIGTERM.value, 4)]
    flip_a_bit(disturbed.home / "checkpoints")
    while (status := disturbed.run()) != 0 and len(statuses) < 5:
        statuses.append(status)

    assert (statuses[:2], status) == ([-signal.SIGKILL, 75], 0)
    assert disturbed.figures() == undisturbed.figures()


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_a_training_survives_twenty_kills(shape: str, program: WarmProgram, tmp_path: Path) -> None:
    """Killed at twenty random moments, a training has the figures of an undisturbed one."""
    undisturbed = Training(program, shape, tmp_path / "undisturbed")
    assert undisturbed.run() == 0
    chance = random.Random(shape)
    num_kills = num_trainings = 0

    while num_kills < 20:
        num_trainings += 1
        disturbed = Training(program, shape, tmp_path / str(num_trainings))
        while (status := disturbed.run(*(["within", chance.uniform(0, 0.5)] * (num_kills < 20)))) == -signal.SIGKILL:
            num_kills += 1
        assert status == 0
        assert disturbed.figures() == undisturbed.figures()


def flip_a_bit(checkpoints: Path) -> None:
    """Flips a bit in the middle of the largest file of the newest checkpoint."""
    newest = max(checkpoints.glob("*/metadata.json"), key=lambda path: path.stat().st_mtime_ns).parent
    path = max((path for path in newest.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
