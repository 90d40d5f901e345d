"""Measures the points a second that come to rest on a lab's server, on MLflow's and on trackio's, from the same work.

    python benchmarks/ingest_peers.py --mlflow /tmp/env-mlflow --trackio /tmp/env-trackio

Each has a server of its own on this machine, as its documents start it. Ten programs log ten runs each, one metric,
step by step; the clock runs from their start until the server's disk has all points. MLflow's programs send batches of
1,000 points by `log_batch`, the fastest way that it has; trackio's and ours report one point at a time. Ours record at
home first and are sent by `core-sdk push`. `--mlflow` and `--trackio` are environments with `mlflow` and `trackio`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._home import open_view
from core_sdk._interfaces.lab.folder import Lab

_PROGRAMS = 10
_LONGEST_S = 1800
_OURS = """
import os, subprocess, sys
from core_sdk import core
for number in range(int(sys.argv[1])):
    with core.init(name="ingest") as context:
        for step in range(int(sys.argv[2])):
            context.train.report_training_metrics(step, {"loss": 1 / (step + 1)})
os.environ["CORE_SDK_SERVER"] = os.environ["SERVER"]
subprocess.run([sys.executable, "-m", "core_sdk._interfaces.cli", "push"], check=True)
"""
_MLFLOW = """
import sys
from mlflow import MlflowClient
from mlflow.entities import Metric
client = MlflowClient()
experiment = client.get_experiment_by_name("ingest").experiment_id
for number in range(int(sys.argv[1])):
    run = client.create_run(experiment).info.run_id
    points = [Metric("loss", 1 / (step + 1), step, step) for step in range(int(sys.argv[2]))]
    for first in range(0, len(points), 1000):
        client.log_batch(run, metrics=points[first : first + 1000])
    client.set_terminated(run)
"""
_TRACKIO = """
import os, sys, trackio
for number in range(int(sys.argv[1])):
    trackio.init(project="ingest", name=f"{os.getpid()}-{number}", server_url=os.environ["SERVER"], embed=False)
    for step in range(int(sys.argv[2])):
        trackio.log({"loss": 1 / (step + 1)}, step=step)
    trackio.finish()
"""
_TRACKIO_SERVER = """
import sys, trackio
trackio.show(project="ingest", host="127.0.0.1", server_port=int(sys.argv[1]), open_browser=False, block_thread=True)
"""


@dataclass(frozen=True)
class Contender:
    name: str
    server: Sequence[str]
    program: Sequence[str]
    variables: Mapping[str, str]
    num_stored: Callable[[], int]
    """Returns the points that its server has stored."""
    prepare: Callable[[], object] = lambda: None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--points", type=int, default=1000, help="the points of each run")
    parser.add_argument("--mlflow", type=Path)
    parser.add_argument("--trackio", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        contenders = [ours(Path(directory))]
        contenders += [mlflow(Path(directory), options.mlflow)] if options.mlflow else []
        contenders += [trackio(Path(directory), options.trackio)] if options.trackio else []
        for one in contenders:
            seconds, num_stored = measured(one, options.runs // _PROGRAMS, options.points)
            words = f"{num_stored:,} points in {seconds:.1f} s: {num_stored / seconds:10,.0f} points/s"
            print(f"{one.name:10} {words}", flush=True)


def measured(one: Contender, num_runs: int, num_points: int) -> tuple[float, int]:
    """Returns the seconds until all is stored, or until nothing more comes, and the number of points."""
    variables = {**os.environ, **one.variables}
    wanted = _PROGRAMS * num_runs * num_points
    with subprocess.Popen(one.server, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _await_port(int(one.variables["PORT"]))
            one.prepare()
            begin = time.perf_counter()
            command = [*one.program, str(num_runs), str(num_points)]
            programs = [
                subprocess.Popen(command, env=_own(variables, number), stdout=subprocess.DEVNULL)
                for number in range(_PROGRAMS)
            ]
            codes = [program.wait(_LONGEST_S) for program in programs]
            ended = time.perf_counter()
            while (num_stored := one.num_stored()) < wanted and time.perf_counter() < ended + 60:
                time.sleep(0.2)
            if any(codes):
                print(f"{one.name}: programs have ended with {codes}")
            return time.perf_counter() - begin, num_stored
        finally:
            server.terminate()


def ours(root: Path) -> Contender:
    lab = Lab.create(root / "lab")
    lab.add_workspace("w")
    lab.people.set_role("w", "p", "writer")
    token, _ = lab.people.issue("token", "p", None, workspace="w")
    port = _free_port()

    def num_stored() -> int:
        with open_view(lab.home("w")) as view:
            return sum(series.count for row in view.trials() for series in view.series(row.trial_id))

    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "server", "up", str(lab.root)]
    variables = {"PORT": str(port), "CORE_SDK_TOKEN": token, "CORE_SDK_QUIET": "1", "HOMES": str(root)}
    variables["SERVER"] = f"http://127.0.0.1:{port}/w/w"
    listen = f"--listen=127.0.0.1:{port}"
    return Contender("core-sdk", [*command, listen], [sys.executable, "-c", _OURS], variables, num_stored)


def mlflow(root: Path, environment: Path) -> Contender:
    port, database = _free_port(), root / "mlflow.db"
    server = [f"{environment}/bin/mlflow", "server", "--host=127.0.0.1", f"--port={port}"]
    server += [f"--backend-store-uri=sqlite:///{database}", f"--artifacts-destination={root / 'artifacts'}"]
    python = f"{environment}/bin/python"
    variables = {"PORT": str(port), "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
    create = "from mlflow import MlflowClient; MlflowClient().create_experiment('ingest')"

    def prepare() -> None:
        subprocess.run([python, "-c", create], env={**os.environ, **variables}, check=True)

    return Contender("mlflow", server, [python, "-c", _MLFLOW], variables, lambda: _count(database, "metrics"), prepare)


def trackio(root: Path, environment: Path) -> Contender:
    port, python = _free_port(), f"{environment}/bin/python"
    variables = {"PORT": str(port), "TRACKIO_DIR": str(root / "trackio"), "TRACKIO_WRITE_TOKEN": "t" * 32}
    variables["SERVER"] = f"http://127.0.0.1:{port}/?write_token={'t' * 32}"
    server = [python, "-c", _TRACKIO_SERVER, str(port)]
    stored = root / "trackio" / "ingest.db"
    return Contender("trackio", server, [python, "-c", _TRACKIO], variables, lambda: _count(stored, "metrics"))


def _own(variables: Mapping[str, str], number: int) -> dict[str, str]:
    """Returns the variables of a program: each of ours has a home of its own, as on a machine of its own."""
    homes = variables.get("HOMES")
    return {**variables, "CORE_SDK_HOME": f"{homes}/home{number}"} if homes else {**variables}


def _count(database: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        return int(connection.execute(f"select count(*) from {table}").fetchone()[0])


def _await_port(port: int) -> None:
    give_up = time.monotonic() + 300
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
        time.sleep(0.2)
    raise SystemExit(f"nothing listens at port {port}")


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


if __name__ == "__main__":
    main()
