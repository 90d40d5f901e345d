"""The examples with workers learn what they promise, and go on after a pause."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_for

from core_sdk import client
from core_sdk._home import Home

# They start several processes that import torch.
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CORE_SDK = Path(sys.executable).with_name("core-sdk")
PAUSED = 75


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_as_promised(process: subprocess.Popen[str]) -> None:
    """The last line states what was reached and what the example promises."""
    output, errors = process.communicate(timeout=120)
    told = re.search(r"accuracy (\S+) on the test digits \(expected: (\S+) or more\)\n\Z", output)
    assert told, output + errors
    assert float(told[1]) >= float(told[2])


def test_one_process_alone_learns_the_digits() -> None:
    """The example without workers learns the digits in one process."""
    assert_as_promised(start(sys.executable, str(EXAMPLES / "9_train.py"), "--workers=0"))


@pytest.mark.parametrize(
    ("script", "option"),
    [("9_train.py", "--workers=2"), ("9_sgd.py", "--replicas=2")],
)
def test_workers_learn_the_digits_also_after_a_pause(home: Home, script: str, option: str) -> None:
    """With two workers, the example learns the digits, also when it is paused and resumed."""
    first = start(str(CORE_SDK), "run", "--", sys.executable, str(EXAMPLES / script), option)
    wait_for(lambda: any(home.checkpoints.glob("*-*")))
    client.get_trial(1).pause()  # at once: on a busy machine a command would start only when the training has ended
    first.communicate(timeout=240)
    assert first.returncode == PAUSED

    assert_as_promised(start(str(CORE_SDK), "trial", "resume", "1"))

    assert home.trial(1).attempts() == [1, 2]
