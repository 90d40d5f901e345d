"""Measures the time from the submission of a job to the first line of its script, beside Slurm's own.

    python benchmarks/submissions.py [--submissions 30]

A cluster of two nodes runs on hosts of this machine (as root: `make packages`). In turns, the same Python script is
submitted by `sbatch`, by `core-sdk experiment create` with a master that runs already, and by `core-sdk run --engine
slurm --detach`. The script writes the time at which it runs; the clock starts with the command that submits it.
Printed are the medians, the slowest, and how much later than Slurm's own the others are.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # where the cluster is

from execution.slurm.cluster import Cluster, slurm_cluster
from processes import wait_for

CORE_SDK = [sys.executable, "-m", "core_sdk._interfaces.cli"]
CONFIG = f"""\
name: first line
entrypoint: {sys.executable} first_line.py
searcher: {{name: single, metric: loss}}
resources: {{engine: slurm, slots_per_trial: 1}}
"""
SCRIPT = """
import os, time
with open("began.new", "w") as file:
    file.write(repr(time.time()))
os.rename("began.new", "began")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=30)
    number = parser.parse_args().submissions
    with tempfile.TemporaryDirectory() as scratch, slurm_cluster(2) as slurm:
        place = Path(scratch) / "place"
        place.mkdir()
        os.environ |= {"CORE_SDK_HOME": f"{scratch}/home", "CORE_SDK_SLOTS": f"{scratch}/slots"}
        (place / "first_line.py").write_text(SCRIPT)
        (place / "config.yaml").write_text(CONFIG)
        slurm.run([*CORE_SDK, "master", "up"], cwd=place)
        try:
            ways: dict[str, Callable[[], object]] = {
                "sbatch": partial(slurm.submit, f"exec {sys.executable} first_line.py", cwd=place),
                "core-sdk experiment create": partial(
                    slurm.run, [*CORE_SDK, "experiment", "create", "config.yaml"], cwd=place
                ),
                "core-sdk run --engine slurm": partial(
                    slurm.run,
                    [*CORE_SDK, "run", "--engine", "slurm", "--detach", "--", sys.executable, "first_line.py"],
                    cwd=place,
                ),
            }
            measured: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(number):
                for way, submit in ways.items():
                    measured[way].append(first_line_s(slurm, place, submit))
        finally:
            slurm.run([*CORE_SDK, "master", "down"], cwd=place)
    own = statistics.median(measured["sbatch"])
    for way, seconds in measured.items():
        print(f"{way:30} {describe(seconds)}   {statistics.median(seconds) - own:+.2f} s")


def first_line_s(slurm: Cluster, place: Path, submit: Callable[[], object]) -> float:
    """Returns the seconds from the submission to the script's first line, once no job is left."""
    (place / "began").unlink(missing_ok=True)
    time.sleep(random.random())  # Slurm looks for jobs to start once a second
    started = time.time()
    submit()
    wait_for((place / "began").exists, 120)
    began = float((place / "began").read_text())
    slurm.wait_for(lambda: not slurm.run(["squeue", "--noheader"]).strip())
    return began - started


def describe(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):6.2f} s, at most {max(seconds):.2f} s"


if __name__ == "__main__":
    main()
