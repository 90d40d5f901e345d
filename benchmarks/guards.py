"""Injects NaNs and spikes into trainings of 1, 2 and 4 ranks, and compares how they end with trainings without them.

python benchmarks/guards.py [INJECTIONS] [KILLS]

Each training goes back by a guard and leaves out the batches of the trouble. Its weights must be bit for bit those of a
training that has left out the same batches from the beginning. Then it kills agents, scripts, or all processes of
trainings at random moments after the record of the trouble, resumes them, and looks whether each went back once, to the
same checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import psutil
from execution.agent.test_going_back import COUNTING, command
from execution.agent.test_going_back import resumed_steps as steps_of
from execution.agent.test_leaving_out import resumed_steps, train, weights
from processes import wait_for

from core_sdk._ground.records import Alert
from core_sdk._home import Home
from core_sdk._home.attempts.setbacks import read_troubles
from core_sdk._home.journal import find_records
from core_sdk.client import Tracker

RULES: dict[str, dict[str, object]] = {
    "nan": {"not_finite": True},
    "1e6": {"above_median": 30.0},
}


VICTIMS = ("agent", "script", "all")
# A training that goes back needs about so long, with its next attempt.
MOST_S = 3.0
TIMEOUT_S = 900.0


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    num_kills = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    generator, exact, done, begun = random.Random(1), 0, 0, time.monotonic()
    while done < number:
        kind, num_ranks = generator.choice([*RULES]), generator.choice([1, 2, 4])
        found = inject(kind, generator.randrange(200), generator.randrange(3), num_ranks)
        if found is None:
            continue  # the sample does not come, or too early for a median
        done, exact = done + 1, exact + found
        print(f"{done}: {kind} on {num_ranks} ranks: {'exact' if found else 'DIFFERENT'}", flush=True)
    print(
        f"{exact} of {number} injections end bit for bit as if they had not been, in {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    generator, unchanged = random.Random(2), 0
    for kill in range(1, num_kills + 1):
        victim, after_s = generator.choice(VICTIMS), generator.uniform(0, MOST_S)
        problem = kill_while_going_back(victim, after_s)
        unchanged += not problem
        print(f"{kill}: {victim} killed after {after_s:.2f} s: {problem or 'went back once'}", flush=True)
    print(f"{unchanged} of {num_kills} trainings that were killed on the way went back once, to the same checkpoint")


def inject(kind: str, sample: int, skip_batches: int, num_ranks: int) -> bool | None:
    """Returns whether a training ends exactly; None if it had no trouble, or so early that nothing was usual."""
    rule = {**RULES[kind], "action": "go_back", "skip_batches": skip_batches}
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory) / "home")
        os.environ["CORE_SDK_HOME"] = str(home.root)
        status, output = train(Path(directory), [sample, kind], [rule], num_ranks=num_ranks, timeout_s=TIMEOUT_S)
        troubles = read_troubles(home.trial(1), home.trial(1).attempts())
        if not troubles:
            return None
        steps = resumed_steps(home)
        if status or len({*steps[1:]}) != len(troubles):  # it went back twice to the same step
            print(output)
            return False
        batches = 0
        for trouble, begun_at in zip(troubles, steps, strict=False):
            batches += trouble[1].steps - begun_at + skip_batches
        left_out = {str(steps[-1]): batches - steps[-1]}
        _, plain = train(Path(directory), [-1, kind], [], left_out=left_out, num_ranks=num_ranks, timeout_s=TIMEOUT_S)
        return weights(plain) == weights(output)


def kill_while_going_back(victim: str, after_s: float) -> str:
    """Kills so long after the record of the trouble, resumes until the training ends, and returns what is wrong."""
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory) / "home")
        os.environ["CORE_SDK_HOME"] = str(home.root)
        (Path(directory) / "train.py").write_text(COUNTING)
        run = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, "train.py", "none", "1"]
        with subprocess.Popen(run, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_for(lambda: home.folder(1).journal_path(1).exists() and bool(read_troubles(home.folder(1), [1])))
            time.sleep(after_s)
            for each in victims(process.pid, victim):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        wait_for(lambda: home.folder(1).running_attempt() is None)
        num_resumes = 0
        while (trial := Tracker().get_trial(1)).state.name != "COMPLETED" and num_resumes < 3:
            command(Path(directory), "trial", "resume", "1")
            num_resumes += 1
        kept = [(each.steps_completed, math.isfinite(each.metrics["loss"])) for each in trial.iter_metrics()]
        alerts = [
            alert
            for number in home.folder(1).attempts()
            if home.folder(1).journal_path(number).exists()
            for alert in find_records(home.folder(1).journal_path(number), ['"alert"'])
            if isinstance(alert, Alert) and alert.title == "went back"
        ]
        steps = steps_of(home)
        if trial.state.name != "COMPLETED":
            return f"it is {trial.state.name} after {num_resumes} resumes"
        if kept != [(step, True) for step in range(1, 11)] or steps[:2] != [0, 6] or min(steps[1:]) < 6:
            return f"it went on from {steps}, and has {kept}"
        return f"it says {len(alerts)} times that it went back" if len(alerts) > 1 else ""


def victims(run: int, victim: str) -> list[psutil.Process]:
    """Returns the processes to kill, of those that have not ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(run).children(recursive=True)
        agents = [each for each in started if "core_sdk._execution.agent" in each.cmdline()]
        scripts = [each for each in started if "train.py" in each.cmdline()]
        return {"agent": agents, "script": scripts, "all": [psutil.Process(run), *started]}[victim]
    return []


if __name__ == "__main__":
    main()
