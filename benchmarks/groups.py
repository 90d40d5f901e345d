"""How fast the web page's server joins the curves of groups of trials, and how soon a report is in them.

    python benchmarks/groups.py [--trials 50] [--points 100000] [--groups 10] [--repeats 40]

"first" is the answer before any bins are remembered; "again" has nothing new; before each "one trial has reported" one
more report of one trial is recorded; "live" is the time from a report to the first answer that has it, asked for at
each event as an open page does. The server answers over HTTP, from a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from http.client import HTTPResponse
from pathlib import Path
from statistics import median, quantiles

from page_server import Server, serving, show

from core_sdk.journal import encode_line
from core_sdk.records import FORMAT, AttemptStarted, Report, TrialRecord
from core_sdk.tracking import Home, TrialFolder

_EPOCH = 1_750_000_000.0
_QUESTION = "/api/v1/groups?experiment=1&by=lr&metrics=training.loss&points=300"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("trials", 50), ("points", 100_000), ("groups", 10), ("repeats", 40)):
        parser.add_argument(f"--{name}", type=int, default=number)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Home.create(Path(directory) / "home")
        folders = [write_trial(home, number, arguments) for number in range(arguments.trials)]
        with serving(home.root) as server:
            server.number("/api/v1/runs?limit=1", "num_trials")
            measure(server, folders, arguments)


def write_trial(home: Home, number: int, arguments: argparse.Namespace) -> TrialFolder:
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
    return folder


def measure(server: Server, folders: list[TrialFolder], arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    _, content = server.get(_QUESTION)
    show("first", f"{time.perf_counter() - start:.2f} s, {len(content):,} bytes")
    show("again", of_times([ask(server)[0] for _ in range(arguments.repeats)]), "p95 at most 300 ms")
    connection, stream = server.open("/api/v1/events")
    asked, live = [], []
    for repeat in range(arguments.repeats):
        step = arguments.points + repeat
        start = time.perf_counter()
        with folders[repeat % len(folders)].journal_path(1).open("ab") as journal:
            journal.write(encode_line(Report(_EPOCH + step, "training", step, {"loss": 0.1})))
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
