"""What it costs to start a script as an attempt: 64 scripts, two at a time, bare and by agents that a spawner forks.

python benchmarks/agents.py [--scripts 64] [--rounds 5]

The scripts do nothing, or only enter and leave their Context. The bare ones are started as `xargs -P2` does. The target
is for the second kind: a Python that does nothing ends sooner than any other process can be told of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core_sdk._execution.agent.starting import Agent, AgentSpawner
from core_sdk._ground.records import CommandRecord
from core_sdk._home import Home
from core_sdk._home.attempts.starting import begin_in_experiment
from core_sdk._machine.slots import Slots

TARGET = 1.3
NUM_SLOTS = 2

SCRIPTS = {
    "a script that does nothing": "",
    "a script that calls init()": "from core_sdk import core\nwith core.init(): pass",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    is_met = False
    for what, source in SCRIPTS.items():
        with tempfile.TemporaryDirectory() as directory:
            bare_s, ours_s = durations_s(Path(directory), source, options.scripts, options.rounds)
        ratio = ours_s / bare_s
        is_met = ratio <= TARGET  # of the last
        more_ms = (ours_s - bare_s) / options.scripts * NUM_SLOTS * 1000
        print(
            f"{what}: {bare_s:.2f} s bare, {ours_s:.2f} s as attempts ({ratio:.2f} times; {more_ms:.1f} ms more each)"
        )
    print("met" if is_met else "MISSED", f"(target {TARGET} times)")
    sys.exit(0 if is_met else 1)


def durations_s(directory: Path, source: str, num_scripts: int, num_rounds: int) -> tuple[float, float]:
    """Medians over rounds that take turns, so that a busy minute of the machine falls on both."""
    script = directory / "train.py"
    script.write_text(source)
    argv = [sys.executable, str(script)]
    home = Home.create(directory / "home")
    os.environ["CORE_SDK_HOME"] = str(home.root)
    experiment_id = home.new_experiment("benchmark").experiment_id
    spawner = AgentSpawner()

    def run_bare(number: int) -> None:
        subprocess.run(argv, check=True)

    def run_attempt(number: int) -> None:
        agent = Agent(spawner)
        start = begin_in_experiment(
            home.create_trial(),
            experiment_id,
            request_id=str(number),
            hparams={},
            seed=number,
            config={},
            command=lambda _: CommandRecord(argv=argv, cwd=str(directory), environment={}),
            slots=Slots((number % NUM_SLOTS,)),
        )
        agent.start(start, stdin=None)
        if (code := agent.wait().code) != 0:
            raise SystemExit(f"a script ended with {code}: {start.folder.log_path(1).read_text()}")
        agent.close()

    rounds = [[_duration_s(run, num_scripts) for run in (run_bare, run_attempt)] for _ in range(num_rounds + 1)]
    spawner.close()
    # The first round filled the page cache and wrote the byte code.
    bare_s, ours_s = (statistics.median(durations) for durations in zip(*rounds[1:], strict=True))
    return bare_s, ours_s


def _duration_s(run: Callable[[int], None], num_scripts: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(NUM_SLOTS) as slots:
        list(slots.map(run, range(num_scripts)))
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
