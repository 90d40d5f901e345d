"""Imports runs of TensorBoard and MLflow, and asks a question in SQL over all their points.

    python benchmarks/exchange.py [--runs 100] [--points 100000]

For each tool, a folder with so many runs of so many points is imported by `core-sdk import` into an empty home; beside
it stands the time that a plain reading of one of its runs takes (TensorBoard's own loader of event files; for MLflow
the lines of its text file). Then `core-sdk sql` gives the mean by trial over all points: once as the index is still
cold, and once more; beside it stands the same mean by DuckDB over a Parquet file that `core-sdk export` has written.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch.utils.tensorboard import SummaryWriter

CORE_SDK = [sys.executable, "-m", "core_sdk._interfaces.cli"]
MEAN = "select trial_id, avg(value) from metrics group by trial_id order by trial_id"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--points", type=int, default=100_000)
    arguments = parser.parse_args()
    print(f"{arguments.runs} runs of {arguments.points:,} points")
    with tempfile.TemporaryDirectory() as scratch:
        for tool, write, read in (("TensorBoard", write_events, read_events), ("MLflow", write_mlflow, read_lines)):
            records, home = Path(scratch) / tool, Path(scratch) / f"{tool}-home"
            write(records, arguments.runs, arguments.points)
            plain_s = timed(partial(read, records))
            import_s = command_s(home, "import", str(records))
            each_s = import_s / arguments.runs
            print(
                f"{tool:12} import {import_s:6.1f} s, {each_s:.2f} s a run   plain reading {plain_s:.2f} s a run",
                flush=True,
            )
        first_s, again_s = (command_s(home, "sql", MEAN, "--csv") for _ in range(2))
        command_s(home, "export", f"{scratch}/parquet")
        ours = MEAN.replace("metrics", f"'{scratch}/parquet/metrics.parquet'")
        parquet_s = timed(lambda: duckdb.execute(ours).fetchall())
        print(f"SQL over {arguments.runs * arguments.points:,} points: {first_s:.2f} s, again {again_s:.2f} s", end="")
        print(f"   DuckDB over Parquet {parquet_s:.2f} s")


def write_events(directory: Path, num_runs: int, num_points: int) -> None:
    """Writes one event file, and copies it under another name for each other run."""
    first = directory / "run-0"
    with SummaryWriter(str(first)) as writer:
        for step in range(num_points):
            writer.add_scalar("loss", 1 / (step + 1), step)
    for number in range(1, num_runs):
        copy = directory / f"run-{number}"
        shutil.copytree(first, copy)
        (path,) = copy.iterdir()  # by its name a run is known again
        path.rename(path.with_name(f"{path.name}.{number}"))


def write_mlflow(directory: Path, num_runs: int, num_points: int) -> None:
    """Writes a store of text files, as MLflow's own has them."""
    experiment = directory / "mlruns" / "1"
    lines = "".join(f"{1_700_000_000_000 + step} {1 / (step + 1)} {step}\n" for step in range(num_points))
    experiment.mkdir(parents=True)
    (experiment / "meta.yaml").write_text("experiment_id: '1'\nname: benchmark\nlifecycle_stage: active\n")
    for number in range(num_runs):
        run = experiment / f"{number:032x}"
        for name in ("metrics", "params", "tags"):
            (run / name).mkdir(parents=True)
        (run / "meta.yaml").write_text(
            f"run_id: {run.name}\nrun_uuid: {run.name}\nrun_name: run-{number}\nexperiment_id: '1'\nstatus: 3\n"
            "start_time: 1700000000000\nend_time: 1700000100000\nlifecycle_stage: active\n"
        )
        (run / "params" / "lr").write_text("0.1")
        (run / "metrics" / "loss").write_text(lines)


def read_events(directory: Path) -> None:
    for _ in EventFileLoader(str(next(directory.rglob("events.*")))).Load():
        pass


def read_lines(directory: Path) -> None:
    with next(directory.rglob("metrics/loss")).open() as file:
        for line in file:
            stamp, value, step = line.split()
            int(stamp), float(value), int(step)


def command_s(home: Path, *arguments: str) -> float:
    """Returns the seconds that a command takes, its start included."""
    variables = os.environ | {"CORE_SDK_HOME": str(home)}
    return timed(lambda: subprocess.run([*CORE_SDK, *arguments], env=variables, stdout=subprocess.DEVNULL, check=True))


def timed(do: Callable[[], object]) -> float:
    began = time.monotonic()
    do()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
