"""Measures the points a second that a workspace takes of a hundred trials at once, next to the same bytes on one disk.

    python benchmarks/ingest.py --trials 100 --points 10000

Each trial is recorded in the home first, so that only the way to the workspace is measured: reading, HTTP to a server
in a process of its own, appending and fsync. Ten pushers send ten trials each, as ten homes would. The baseline appends
the same pieces to files and fsyncs each, in one process without a network.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from core_sdk._ground.records import FORMAT, AttemptStarted, Report, TrialRecord
from core_sdk._home.folders import Home
from core_sdk._home.journal import encode_line, encode_lines
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pusher
from core_sdk._workspace.routes import receiving_routes
from core_sdk._workspace.wire import PIECE_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--points", type=int, default=10_000, help="the points of each trial")
    parser.add_argument("--pushers", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home, workspace = Home.create(Path(directory) / "home"), Home.create(Path(directory) / "lab")
        size_bytes = record(home, options.trials, options.points)
        num_points = options.trials * options.points
        baseline_s, baseline_cpu_s = timed(lambda: copy(home, Path(directory)))
        elapsed_s, cpu_s = timed(lambda: push(home, workspace, options.pushers))
        check(home, workspace)
    print(f"{options.trials} trials of {options.points:,} points, {size_bytes / 1e6:.0f} MB")
    show("appended and fsynced", num_points, baseline_s, baseline_cpu_s)
    show(f"sent by {options.pushers} pushers", num_points, elapsed_s, cpu_s)


def show(what: str, num_points: int, elapsed_s: float, cpu_s: float) -> None:
    speeds = f"{num_points / elapsed_s:12,.0f} points/s {num_points / cpu_s:12,.0f} points for each second of a core"
    print(f"{what:24} {speeds}")


def timed(measured: Callable[[], None]) -> tuple[float, float]:
    """Returns the seconds that passed, and those that processors have spent, here and in children that have ended."""
    begin, before = time.perf_counter(), sum(os.times()[:4])
    measured()
    return time.perf_counter() - begin, sum(os.times()[:4]) - before


def record(home: Home, num_trials: int, num_points: int) -> int:
    """Writes the journals of trials, and returns their size."""
    experiment_id = home.find_or_create_experiment("ingest").experiment_id
    size_bytes = 0
    for _ in range(num_trials):
        folder = home.create_trial()
        started = AttemptStarted(
            time=1.0, format=FORMAT, trial_id=folder.trial_id, attempt=1, host="h", pid=1, sdk_version="1",
            home=home.identity(),
        )  # fmt: skip
        reports = [Report(float(step), "training", step, {"loss": 1 / (step + 1)}) for step in range(num_points)]
        content = encode_line(started) + encode_lines(reports)
        folder.journal_path(1).write_bytes(content)
        size_bytes += len(content)
        folder.write_record(
            TrialRecord(trial_id=folder.trial_id, experiment_id=experiment_id, created=folder.trial_id, seed=0)
        )
    return size_bytes


def copy(home: Home, directory: Path) -> None:
    """Appends the journals to files piece by piece."""
    journals = [home.folder(trial_id).journal_path(1) for trial_id in home.trial_ids()]
    for journal in journals:
        with (
            journal.open("rb") as source,
            (directory / f"{journal.parent.name}.copy").open("ab", buffering=0) as target,
        ):
            while content := source.read(PIECE_BYTES):
                target.write(content)
                os.fsync(target.fileno())


def push(home: Home, workspace: Home, num_pushers: int) -> None:
    """Sends all trials."""
    forking = multiprocessing.get_context("fork")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(128)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/w/lab"
        server = forking.Process(target=serve, args=[workspace, bound], daemon=True)
        server.start()
        ids = home.trial_ids()
        pushers = [forking.Process(target=send, args=[home, url, ids[n::num_pushers]]) for n in range(num_pushers)]
        for pusher in pushers:
            pusher.start()
        for pusher in pushers:
            pusher.join()
        server.terminate()
        server.join()


def serve(workspace: Home, bound: socket.socket) -> None:
    app = Starlette(routes=[Mount("/w/lab/api/v1", routes=receiving_routes(workspace))])
    uvicorn.Server(uvicorn.Config(app, log_level="warning", loop="asyncio", ws="none")).run(sockets=[bound])


def send(home: Home, url: str, trial_ids: list[int]) -> None:
    with WorkspaceConnection(url) as connection:
        Pusher(home, connection).push(trial_ids)


def check(home: Home, workspace: Home) -> None:
    """Holds that every journal is there, byte by byte."""
    for number in workspace.trial_ids():
        folder = workspace.folder(number)
        ours = home.folder(folder.read_record().first_id)
        if folder.journal_path(1).read_bytes() != ours.journal_path(1).read_bytes():
            raise SystemExit(f"trial {number} of the workspace is not trial {ours.trial_id} of the home")
    if len(workspace.trial_ids()) != len(home.trial_ids()):
        raise SystemExit("trials are missing in the workspace")


if __name__ == "__main__":
    main()
