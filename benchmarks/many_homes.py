"""Measures the page over the homes of many people, which are read as one.

    python benchmarks/many_homes.py --homes 40 --trials 500 --points 50000

The homes lie on the local disk. A look is timed until `/runs` has answered with all trials, once without an index and
then with one: from the start of `core-sdk ui`, and from its address on. Then a trial is begun in one of the homes, and
its row is waited for. `core-sdk trial list` is timed as a process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page_home import write_home
from page_server import Server, serving

from core_sdk._home import Home

_PATHS = (
    "runs?limit=200",
    "runs?limit=200&where=owner%3Droot",
    "columns",
    "experiments",
    "trials/7",
    "trials/7/metrics",
    "trials/19000/metrics",
    "comparison?trials=7&trials=700",
)
_REPEATS = 10
_OF_A_PAGE = {"X-Core-SDK-Parts": "1"}
"""A page shows the newest trials as soon as they are read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--homes", type=int, default=40)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--points", type=int, default=50_000, help="in each home")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        lab, own = Path(directory) / "lab", Path(directory) / "own"
        first = Home.create(lab / "0" / "core-sdk")
        write_home(first, arguments.trials, arguments.points)
        for number in range(1, arguments.homes):
            shutil.copytree(first.root, lab / str(number) / "core-sdk", symlinks=True)
        pattern, num_trials = str(lab / "*" / "core-sdk"), arguments.homes * arguments.trials
        print(f"{arguments.homes} homes of {arguments.trials} trials, {arguments.homes * arguments.points:,} points")
        look(own, pattern, num_trials, "no index yet", "-")
        for _ in range(3):
            look(own, pattern, num_trials, "the index is there", "2 s")
        with serving(own, "--homes", pattern) as server:
            wait_for_trials(server, num_trials)
            for path in _PATHS:
                times = [timed(server, path) for _ in range(_REPEATS)]
                told = f"{statistics.median(times):.3f} s, at most {max(times):.3f} s"
                print(f"  {path:40} {told}  (target 0.3 s)")
            begun = time.perf_counter()
            write_home(first, 1, 100)
            wait_for_trials(server, num_trials + 1)
            print(f"  a new trial is on the page after {time.perf_counter() - begun:.1f} s")
            print(f"  memory of the server {server.rss_mb():.0f} MB")
        command = [
            sys.executable,
            "-m",
            "core_sdk._interfaces.cli",
            "trial",
            "list",
            "--limit",
            "20",
            "--homes",
            pattern,
        ]
        for _ in range(2):
            begun = time.perf_counter()
            subprocess.run(command, env=os.environ | {"CORE_SDK_HOME": str(own)}, stdout=subprocess.DEVNULL, check=True)
            print(f"core-sdk trial list takes {time.perf_counter() - begun:.2f} s")


def look(own: Path, pattern: str, num_trials: int, words: str, target: str) -> None:
    begun = time.perf_counter()
    with serving(own, "--homes", pattern) as server:
        moments = [(time.perf_counter(), server.cpu_s())]
        part = server.number("/api/v1/runs?limit=200", "num_trials", **_OF_A_PAGE)
        moments.append((time.perf_counter(), server.cpu_s()))
        wait_for_trials(server, num_trials)
        moments.append((time.perf_counter(), server.cpu_s()))
    (start, start_cpu), (first, first_cpu), (last, last_cpu) = moments
    print(
        f"first look, {words}: the command has an address after {start - begun:.2f} s ({start_cpu:.2f} s of a CPU), "
        f"the newest {part:,} trials {first - start:.2f} s ({first_cpu - start_cpu:.2f} s) later (target {target}), "
        f"and all {last - start:.2f} s ({last_cpu - start_cpu:.2f} s)",
        flush=True,
    )


def wait_for_trials(server: Server, num_trials: int) -> None:
    while server.number("/api/v1/runs?limit=200", "num_trials") < num_trials:
        time.sleep(0.02)


def timed(server: Server, path: str) -> float:
    begun = time.perf_counter()
    server.get(f"/api/v1/{path}")
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
