"""The examples on several ranks learn what they promise, stop in the middle, and go on, also on more or fewer ranks."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# They train, with PyTorch, to an accuracy.
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CORE_SDK = Path(sys.executable).with_name("core-sdk")
STEPS_PER_EPOCH = 45

PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""


def core_sdk(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(CORE_SDK), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def answer(*arguments: object) -> Any:
    """Returns what a command says as JSON."""
    return json.loads(core_sdk(*arguments, "--json").stdout)


def launch(script: str, num_ranks: int, *arguments: object) -> list[str]:
    launcher = [sys.executable, "-m", "launch.torch_distributed", f"--nproc-per-node={num_ranks}", "--"]
    return [str(CORE_SDK), "run", "--", *launcher, sys.executable, str(EXAMPLES / script), *map(str, arguments)]


def stop_in_epoch(command: list[str], epoch: int, number: int) -> int:
    """Sends the signal to `core-sdk run` when the chief has finished the epoch; the exit status."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(f"[rank=0] epoch {epoch},"):
                process.send_signal(number)
        return process.wait(60)


def accuracies(output: str) -> list[tuple[float, float]]:
    """Returns the reached and the expected accuracy, from each rank that says it."""
    found = re.findall(r"^\[rank=\d+\] accuracy (\S+) on the test images \(expected: (\S+) or more\)", output, re.M)
    return [(float(reached), float(expected)) for reached, expected in found]


@pytest.mark.parametrize(
    ("script", "num_epochs"),
    [
        # `make demo`, a part of `make check`, shows the first; the second is resumed on other numbers of ranks below.
        ("5_distributed.py", 20),
        ("5_sharded.py", 10),
    ],
)
def test_a_training_on_two_ranks_stops_in_the_middle_and_goes_on_to_its_accuracy(script: str, num_epochs: int) -> None:
    """SIGTERM stops both ranks in the same epoch; the trial counts every step once."""
    stopped = stop_in_epoch(launch(script, 2), 3, signal.SIGTERM)

    resumed = core_sdk("trial", "resume", 1)

    assert stopped == PAUSED
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert accuracies(resumed.stdout)
    assert all(reached >= expected for reached, expected in accuracies(resumed.stdout))
    steps = [report["steps_completed"] for report in answer("trial", "metrics", 1, "--group", "validation")]
    assert steps == list(range(STEPS_PER_EPOCH, num_epochs * STEPS_PER_EPOCH + 1, STEPS_PER_EPOCH))


def test_shards_are_read_by_another_number_of_ranks() -> None:
    """Checkpoints in shards are read by another number of ranks: two, then one, then three."""
    stopped = stop_in_epoch(launch("5_sharded.py", 2, "--epochs", 8), 2, signal.SIGTERM)
    stored_by_two = {tuple(files(uuid)) for uuid in checkpoints()}

    on_one = stop_in_epoch(resume_on(1), 5, signal.SIGTERM)  # the second: SIGTERM is caught from the first call on
    on_three = subprocess.run(resume_on(3), capture_output=True, text=True, check=False, timeout=120)

    assert (stopped, on_one, on_three.returncode) == (PAUSED, PAUSED, 0), on_three.stdout
    assert stored_by_two == {(".metadata", "__0_0.distcp", "__1_0.distcp", "metadata.json")}
    assert "__2_0.distcp" in files(checkpoints()[0])
    steps = [report["steps_completed"] for report in answer("trial", "metrics", 1, "--group", "validation")]
    assert steps == list(range(STEPS_PER_EPOCH, 8 * STEPS_PER_EPOCH + 1, STEPS_PER_EPOCH))


def checkpoints() -> list[str]:
    """Returns the checkpoints of trial 1, newest first."""
    return [checkpoint["storage_id"] for checkpoint in answer("checkpoint", "list", "--trial", 1)]


def files(uuid: str) -> list[str]:
    return sorted(answer("checkpoint", "describe", uuid)["resources"])


def resume_on(num_ranks: int) -> list[str]:
    """Returns the command that goes on with trial 1 on so many ranks."""
    _, _, *command = launch("5_sharded.py", num_ranks, "--epochs", 8)
    return [str(CORE_SDK), "trial", "resume", "1", *command]
