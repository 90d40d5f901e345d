"""Measures how fast journals are indexed, how large the index is, and what a killed command costs the next.

    python benchmarks/indexing.py --points 10000000

Reports have three metrics. A chart is 2,000 buckets of one series with true minima and maxima.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from core_sdk._ground.environment import agent_variables
from core_sdk._ground.records import FORMAT, AttemptStarted, Ended, Report, TrialRecord
from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._home.journal import encode_line

_T = TypeVar("_T")

_NUM_METRICS = 3
_REPORTS_PER_TRIAL = 1_000_000
_NUM_BUCKETS = 2000
_EPOCH = 1_750_000_000.0
_LIST = (sys.executable, "-m", "core_sdk._interfaces.cli", "trial", "list")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--trials", type=int, default=2_000, help="finished trials, for the time of an idle refresh")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Home.create(Path(directory, "points"))
        measure_points(home, arguments.points)
        measure_kills(home)
        measure_many_trials(Home.create(Path(directory, "trials")), arguments.trials)


def measure_points(home: Home, num_points: int) -> None:
    write_trials(home, num_points)
    with Index(home) as index:
        elapsed_s, result = timed(index.refresh)
        speed = f"{result.num_points / elapsed_s:,.0f} points/s"
        show("first look", f"{elapsed_s:.1f} s, {speed}", "at least 200,000, and 10^7 in at most 10 s")
        size_bytes = home.database.stat().st_size
        show("index on disk", f"{size_bytes / result.num_points:.1f} bytes a point", "at most 40")

        chart_s = typical_s(lambda: index.buckets(1, "training", "loss", _NUM_BUCKETS))
        show("chart", f"{chart_s * 1000:.0f} ms", "at most 300 ms")
        elapsed_s, num_reports = timed(lambda: sum(1 for _ in index.reports(1, "training")))
        show("reading reports", f"{num_reports / elapsed_s:,.0f} reports/s")
        show("summary of a trial", f"{timed(lambda: index.summary(1))[0] * 1000:.0f} ms")
        show("refresh, nothing new", f"{typical_s(index.refresh) * 1000:.1f} ms")


def measure_kills(home: Home, num_turns: int = 9, num_reports: int = 200_000) -> None:
    """Times `trial list` after new reports, in turns with one that follows a command killed amid reading as many."""
    ordinary, after_kill = list[float](), list[float]()
    for turn in range(num_turns):
        write_trial(home, num_reports)
        ordinary.append(timed(lambda: run_list(home))[0])
        write_trial(home, num_reports)
        with start_list(home) as command:
            try:
                command.wait(ordinary[-1] * (turn + 1) / (num_turns + 1))
            except subprocess.TimeoutExpired:
                command.kill()
        after_kill.append(timed(lambda: run_list(home))[0])
    show(f"trial list, {num_reports:,} new reports", f"{median(ordinary) * 1000:,.0f} ms")
    worst = max(killed / listed for killed, listed in zip(after_kill, ordinary, strict=True))
    ratio = f"{median(after_kill) / median(ordinary):.2f} x, at worst {worst:.2f} x"
    show("the same after a kill -9", f"{median(after_kill) * 1000:,.0f} ms, {ratio}", "at most 1.5 x")


def measure_many_trials(home: Home, num_trials: int) -> None:
    write_trial(home, num_reports=1)
    run_list(home)
    one_s = typical_s(lambda: run_list(home))
    for _ in range(num_trials - 1):
        write_trial(home, num_reports=1)
    with Index(home) as index:
        show(f"{num_trials:,} small trials, new", f"{timed(index.refresh)[0] * 1000:,.0f} ms")
        show(f"{num_trials:,} small trials, again", f"{timed(index.refresh)[0] * 1000:,.0f} ms", "while young")
        time.sleep(2)  # a folder younger than that is looked into at every refresh
        index.refresh()
        show(f"{num_trials:,} finished trials", f"{typical_s(index.refresh) * 1000:,.0f} ms")
        show(f"{num_trials:,} trials, listed", f"{typical_s(index.trials) * 1000:,.0f} ms")
    all_s = typical_s(lambda: run_list(home))
    show(f"{num_trials:,} trials, `trial list`", f"{all_s * 1000:,.0f} ms", f"{one_s * 1000:,.0f} ms for one trial")


def write_trials(home: Home, num_points: int) -> None:
    num_reports = -(-num_points // _NUM_METRICS)
    while num_reports > 0:
        write_trial(home, min(num_reports, _REPORTS_PER_TRIAL))
        num_reports -= _REPORTS_PER_TRIAL


def write_trial(home: Home, num_reports: int) -> None:
    experiment = home.find_or_create_experiment("benchmark")
    folder = home.create_trial()
    folder.write_record(
        TrialRecord(trial_id=folder.trial_id, experiment_id=experiment.experiment_id, created=_EPOCH, seed=0)
    )
    with folder.journal_path(1).open("wb") as journal:
        started = AttemptStarted(
            time=_EPOCH, format=FORMAT, trial_id=folder.trial_id, attempt=1, host="", pid=1, sdk_version=""
        )
        journal.write(encode_line(started))
        for step in range(num_reports):
            values = {"loss": 1.0 / (step + 1.5), "accuracy": step / (step + 7.5), "learning_rate": 0.1 * 0.999**step}
            journal.write(encode_line(Report(_EPOCH + step * 0.0137, "training", step, dict(values))))
        journal.write(encode_line(Ended(time=_EPOCH + num_reports, outcome="completed")))


def run_list(home: Home) -> None:
    with start_list(home) as command:
        if command.wait():
            raise SystemExit(f"`trial list` ended with {command.returncode}")


def start_list(home: Home) -> subprocess.Popen[bytes]:
    variables = agent_variables() | {"CORE_SDK_HOME": str(home.root)}
    return subprocess.Popen(_LIST, env=variables, stdout=subprocess.DEVNULL)


def timed(action: Callable[[], _T]) -> tuple[float, _T]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def typical_s(action: Callable[[], object], repeats: int = 5) -> float:
    return median(timed(action)[0] for _ in range(repeats))


def show(what: str, figure: str, target: str = "") -> None:
    print(f"{what:<32} {figure:<40} {target}", flush=True)


if __name__ == "__main__":
    main()
