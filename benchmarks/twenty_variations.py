"""Measures what an agent learns of twenty variations, five of which help, and how much it reads for that.

python benchmarks/twenty_variations.py [--random 0]

The agent follows docs/studies.md: the first try has twelve seeds, each variation three, and what looks better, also
within noise, gets six more. Its directory is full of outputs, notebooks and weights, and its script prints a progress
bar. Gains are of 1 to 4 times the spread of seeds. The answer is what the last board calls better beyond noise.

Wanted: at least four of the five found, at most one that is none, 50,000 bytes read in all, and 4 KB for each call. The
baseline is the best of one seed: a variation counts as better if its first seed is.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FEWEST_FOUND = 4
MOST_FALSE = 1
MOST_READ_BYTES = 50_000
MOST_CALL_BYTES = 4096

NUM_VARIATIONS = 20
SPREAD = 0.01
GAINS = [SPREAD * times for times in (1.0, 1.75, 2.5, 3.25, 4.0)]
SCRIPT = """\
import random
import sys
from core_sdk import core

NUMBER, GAIN = {number}, {gain}
with core.init() as context:
    draw = random.Random(f"{{NUMBER}} {{context.info.trial.trial_seed}} {seed}")
    for step in range(1, 11):
        for batch in range(100):
            sys.stderr.write(f"\\rstep {{step}}: {{batch}} % |{{'#' * (batch // 2):50}}| 12.3 it/s, loss=0.123")
        print(f"\\nstep {{step}} is over", {{"lr": 0.1, "grad_norm": 1.0}})
        value = 0.8 + GAIN - 0.1 / step + draw.gauss(0, {spread})
        context.train.report_validation_metrics(step, {{"accuracy": value if step == 10 else value - 0.1}})
"""
CLI = [sys.executable, "-m", "core_sdk._interfaces.cli"]


class Agent:
    """Edits and calls, and counts what it reads."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        self.read_bytes: list[int] = []

    def edit(self, number: int, gain: float) -> None:
        text = SCRIPT.format(number=number, gain=gain, seed=self._seed, spread=SPREAD)
        (self._directory / "train.py").write_text(text)

    def call(self, *arguments: str) -> str:
        ended = subprocess.run([*CLI, *arguments], cwd=self._directory, capture_output=True, text=True)
        if ended.returncode:
            raise SystemExit(f"{arguments} ended with {ended.returncode}: {ended.stderr}")
        self.read_bytes.append(len(ended.stdout.encode()) + len(ended.stderr.encode()))
        return ended.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.random)
    gains = [*GAINS, *[0.0] * (NUM_VARIATIONS - len(GAINS))]
    draw.shuffle(gains)
    with tempfile.TemporaryDirectory(prefix="core-sdk-variations-", ignore_cleanup_errors=True) as directory:
        work = Path(directory) / "work"
        os.environ["CORE_SDK_HOME"] = str(Path(directory) / "home")
        fill(work, draw)
        started = time.monotonic()
        agent = Agent(work, options.random)
        better = set(research(agent, gains))
        elapsed_s = time.monotonic() - started
    helped = {number for number, gain in enumerate(gains, 1) if gain}
    of_one = {number for number in range(1, NUM_VARIATIONS + 1) if first_value(number, gains, options.random) > 0.0}
    found, false = better & helped, better - helped
    counts = f"found {len(found)} of {len(helped)}, {len(false)} false"
    most = f"at most {max(agent.read_bytes):,} a call (targets {MOST_READ_BYTES:,} and {MOST_CALL_BYTES:,})"
    print(f"{len(agent.read_bytes)} calls in {elapsed_s:.0f} s: {counts}")
    print(f"  the best of one seed finds {len(of_one & helped)}, and {len(of_one - helped)} false")
    print(f"  {sum(agent.read_bytes):,} bytes read, {most}")
    is_met = (
        len(found) >= FEWEST_FOUND
        and len(false) <= MOST_FALSE
        and sum(agent.read_bytes) <= MOST_READ_BYTES
        and max(agent.read_bytes) <= MOST_CALL_BYTES
    )
    print("met" if is_met else "MISSED")
    sys.exit(0 if is_met else 1)


def fill(work: Path, draw: random.Random) -> None:
    """Makes a repository whose directory has what trainings leave behind."""
    (work / "outputs").mkdir(parents=True)
    for number in range(50):
        (work / "outputs" / f"run-{number}.log").write_text("step 1: 12 % |######| 12.3 it/s\r" * 5000)
    (work / "weights.bin").write_bytes(draw.randbytes(20 << 20))
    (work / "explore.ipynb").write_text('{"cells": [{"outputs": "' + "x" * 1_000_000 + '"}]}')
    (work / ".gitignore").write_text("outputs/\nweights.bin\n")
    subprocess.run(["git", "init", "--quiet"], cwd=work, check=True)


def research(agent: Agent, gains: list[float]) -> list[int]:
    """Tries all variations, repeats what looks better, and returns the numbers that the last board calls better."""
    script = f"{sys.executable} train.py"
    agent.call("study", "begin", "twenty", "--metric", "accuracy", "--larger-is-better", "--script", script)
    agent.edit(0, 0.0)
    agent.call("try", "as it is", "--seeds", "12")
    for number, gain in enumerate(gains, 1):
        agent.edit(number, gain)
        agent.call("try", f"variation {number}")
    for number in better_looking(agent.call("board")):
        agent.edit(number, gains[number - 1])
        agent.call("try", f"variation {number}", "--again", "--seeds", "6")
    return better_of(agent.call("board"))


def better_looking(board: str) -> list[int]:
    """Returns the variations whose mean is better than their parent's, also within noise."""
    return [int(number) for number in re.findall(r"  \+[\d.]+ ± .*variation (\d+)", board)]


def better_of(board: str) -> list[int]:
    """Returns the variations that are better beyond noise."""
    return [int(number) for number in re.findall(r"beyond noise better .*variation (\d+)", board)]


def first_value(number: int, gains: list[float], seed: int) -> float:
    """Returns by how much the first seed of a variation is better than that of the first try."""
    after, before = (_last(each, seed) for each in (number, 0))
    return gains[number - 1] + after - before


def _last(number: int, seed: int) -> float:
    draw = random.Random(f"{number} 0 {seed}")
    return [draw.gauss(0, SPREAD) for _ in range(10)][-1]


if __name__ == "__main__":
    main()
