"""Measures how fast the page's server joins the curves of groups of trials, and how soon a report is in them.

    python benchmarks/groups.py [--trials 50] [--points 100000] [--groups 10] [--repeats 40]

"first" is the answer before any bins are remembered; "again" has nothing new. Then one of the trials reports again and
again: "one trial has reported" is the first answer with each report, and "live" the time from the report to that
answer, asked for at each event as an open page does. The server answers over HTTP, from a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from statistics import median, quantiles
from typing import IO, cast

from page_server import Server, serving, show

from core_sdk._ground.records import FORMAT, AttemptStarted, Ended, Report, TrialRecord
from core_sdk._home import Home
from core_sdk._home.journal import encode_line

# It begins with as many points as the other trials have, and then reports at each line.
_REPORTING = """
import random, sys
from core_sdk import core
with core.init(name="seeds", hparams={"lr": 0.1, "seed": -1}) as context:
    for step in range(int(sys.argv[1])):
        context.train.report_training_metrics(step, {"loss": 1 / (1 + step / 9000) + random.random() / 10})
    print(flush=True)
    for line in sys.stdin:
        context.train.report_training_metrics(int(line), {"loss": 0.1})
"""
_EPOCH = 1_750_000_000.0
_QUESTION = "/api/v1/groups?experiment=1&by=lr&metrics=training.loss&points=300"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("trials", 50), ("points", 100_000), ("groups", 10), ("repeats", 40)):
        parser.add_argument(f"--{name}", type=int, default=number)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Home.create(Path(directory) / "home")
        for number in range(arguments.trials - 1):
            write_trial(home, number, arguments)
        with reporting(home, arguments.points) as lines, serving(home.root) as server:
            server.number("/api/v1/runs?limit=1", "num_trials")
            measure(server, lines, arguments)


@contextlib.contextmanager
def reporting(home: Home, num_points: int) -> Iterator[IO[str]]:
    """Starts a trial that reports each step that is written to its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", _REPORTING, str(num_points)],
        env=os.environ | {"CORE_SDK_HOME": str(home.root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines, told = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
    told.readline()
    yield lines
    lines.close()
    process.wait()


def write_trial(home: Home, number: int, arguments: argparse.Namespace) -> None:
    folder, chance = home.create_trial(), random.Random(number)
    experiment_id = home.find_or_create_experiment("seeds").experiment_id
    hparams = {"lr": 0.1 * (number % arguments.groups + 1), "seed": number // arguments.groups}
    record = TrialRecord(trial_id=folder.trial_id, experiment_id=experiment_id, created=_EPOCH, seed=0, hparams=hparams)
    folder.write_record(record)
    started = AttemptStarted(
        time=_EPOCH, format=FORMAT, trial_id=folder.trial_id, attempt=1, host="node1", pid=1, sdk_version="0"
    )
    with folder.journal_path(1).open("wb") as journal:
        journal.write(encode_line(started))
        for step in range(arguments.points):
            loss = 1 / (1 + step / 9000) + chance.random() / 10
            journal.write(encode_line(Report(_EPOCH + step, "training", step, {"loss": loss})))
        journal.write(encode_line(Ended(time=_EPOCH, outcome="completed")))


def measure(server: Server, lines: IO[str], arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    _, content = server.get(_QUESTION)
    show("first", f"{time.perf_counter() - start:.2f} s, {len(content):,} bytes")
    show("again", of_times([ask(server)[0] for _ in range(arguments.repeats)]), "p95 at most 300 ms")
    connection, stream = server.open("/api/v1/events")
    asked, live = [], []
    for repeat in range(arguments.repeats):
        step = arguments.points + repeat
        start = time.perf_counter()
        lines.write(f"{step}\n")
        lines.flush()
        last_step = -1
        while last_step < step:
            await_change(stream)
            taken_s, last_step = ask(server)
        asked.append(taken_s)
        live.append(time.perf_counter() - start)
    show("one trial has reported", of_times(asked), "p95 at most 300 ms")
    show("live", of_times(live), "at most 1 s")
    show("memory of the server", f"{server.rss_mb():.0f} MB", "below 200 MB")
    connection.close()


def ask(server: Server) -> tuple[float, int]:
    """Returns how long the answer takes, and the last step in it."""
    start = time.perf_counter()
    _, content = server.get(_QUESTION)
    taken_s = time.perf_counter() - start
    return taken_s, max(curve["x"][-1] for curve in json.loads(content)["charts"][0]["curves"])


def await_change(stream: HTTPResponse) -> None:
    while not stream.readline().startswith(b'data: {"trials"'):
        pass


def of_times(taken_s: list[float]) -> str:
    return f"{median(taken_s) * 1000:.0f} ms p50, {quantiles(taken_s, n=20)[-1] * 1000:.0f} ms p95"


if __name__ == "__main__":
    main()
