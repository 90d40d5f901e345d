"""How fast the web page's server answers, how much memory it takes, and what open pages cost the trainings.

    python benchmarks/page_home.py /tmp/page-home
    python benchmarks/page_server.py /tmp/page-home

Each route is asked with ids drawn at random, over HTTP, and the long series of trial 1 is asked for meanwhile; "first"
is the first answer, before anything is remembered; "CPU" is the mean of the server's processor time of an answer, and
of its looks at the records meanwhile. Then trials report at 100 Hz each in a home of their own, without pages and with
20 pages that listen to events and ask for a curve at each change.
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
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

import psutil

_NUM_EXPERIMENTS = 100
_REPORTING = """
import sys, time
from core_sdk import core
taken = []
with core.init(name="live") as ctx:
    for step in range(int(sys.argv[1])):
        start = time.perf_counter()
        ctx.train.report_training_metrics(step, {"loss": 1 / (step + 1)})
        taken.append(time.perf_counter() - start)
        time.sleep(0.01)
taken.sort()
print(taken[len(taken) // 2])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--reporting", type=int, default=50, help="trials that report")
    parser.add_argument("--pages", type=int, default=20)
    arguments = parser.parse_args()
    measure_answers(arguments.home, arguments.repeats)
    with tempfile.TemporaryDirectory() as directory:
        measure_live(Path(directory), arguments.reporting, arguments.pages)


def measure_answers(home: Path, repeats: int) -> None:
    with serving(home) as server:
        start = time.perf_counter()
        num_trials = server.number("/api/v1/runs?limit=1", "num_trials")
        show("first look", f"{time.perf_counter() - start:.1f} s")
        drawn = random.Random(1)
        addresses = {
            "home": "/home",
            "columns": "/columns",
            "runs": "/runs?limit=200",
            "runs, filtered and sorted": "/runs?where=lr%3E0.001%20and%20state=COMPLETED&sort=-loss"
            + _columns("id", "lr", "loss"),
            "runs, 10,000 rows": "/runs?limit=10000"
            + _columns("id", "experiment", "state", "steps", "started", "lr", "loss", "accuracy"),
            "runs, searched": "/runs?search=adam",
            "trial": "/trials/{trial}",
            "attempts": "/trials/{trial}/attempts",
            "metrics": "/trials/{trial}/metrics?superseded=true",
            "metrics over time": "/trials/{trial}/metrics?x=time",
            "metrics of 10^6 points": "/trials/1/metrics",
            "  zoomed to a tenth": "/trials/1/metrics?finer_from={tenth}&finer_to={next_tenth}",
            "system": "/trials/{trial}/system",
            "logs, anywhere in 10^6 lines": "/trials/1/logs?first={line}",
            "experiments": "/experiments",
            "experiment": "/experiments/{experiment}",
            "curves": "/experiments/{experiment}/curves",
            "importance": "/experiments/{experiment}/importance",
            "checkpoints": "/checkpoints?experiment={experiment}",
            "queue": "/queue",
            "openapi.json": "/openapi.json",
        }
        show("", f"{'first':>10}{'p50':>10}{'p95':>10}{'CPU':>10}{'bytes':>12}")
        connection, _stream = server.open("/api/v1/events")  # while a page is open, the server looks by itself
        for name, address in addresses.items():
            taken, cpu_s = [], server.cpu_s()
            for _ in range(repeats):
                tenth = drawn.randrange(900_000)
                filled = address.format(
                    trial=drawn.randrange(2, num_trials + 1),
                    experiment=drawn.randrange(1, max(2, num_trials // _NUM_EXPERIMENTS)),
                    line=drawn.randrange(1_000_000),
                    tenth=tenth,
                    next_tenth=tenth + 100_000,
                )
                start = time.perf_counter()
                _, content = server.get(f"/api/v1{filled}")
                taken.append((time.perf_counter() - start) * 1000)
            p95, cpu_ms = quantiles(taken, n=20)[-1], (server.cpu_s() - cpu_s) / repeats * 1000
            times = f"{taken[0]:7.0f} ms{median(taken):7.0f} ms{p95:7.0f} ms{cpu_ms:7.0f} ms"
            show(name, f"{times}{len(content):12,}", "p95 at most 300 ms")
        connection.close()
        show("memory of the server", f"{server.rss_mb():.0f} MB", "below 200 MB")


def _columns(*names: str) -> str:
    return "".join(f"&columns={name}" for name in names)


def measure_live(home: Path, num_trials: int, num_pages: int) -> None:
    alone_us = reports_us(home, num_trials)
    with serving(home) as server:
        server.get("/api/v1/runs?limit=1")
        stop = threading.Event()
        heard: list[int] = []
        pages = [threading.Thread(target=watch, args=[server, stop, heard]) for _ in range(num_pages)]
        for page in pages:
            page.start()
        cpu_s, start = server.cpu_s(), time.perf_counter()
        watched_us = reports_us(home, num_trials)
        cpu = (server.cpu_s() - cpu_s) / (time.perf_counter() - start)
        stop.set()
        show("memory of the server", f"{server.rss_mb():.0f} MB", "below 200 MB")
        show("changes heard, by all pages", f"{len(heard):,}")
    for page in pages:
        page.join()
    show(f"report, {num_trials} trials, no page", f"{alone_us:.1f} us p50")
    show(
        f"report, {num_pages} pages watch", f"{watched_us:.1f} us p50, the server takes {cpu:.0%} of a CPU", "unchanged"
    )


def reports_us(home: Path, num_trials: int, num_reports: int = 500) -> float:
    """Returns the median over the trials of the median time of a report."""
    command = [sys.executable, "-c", _REPORTING, str(num_reports)]
    variables = os.environ | {"CORE_SDK_HOME": str(home)}
    trials = [subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(num_trials)]
    return median(float(trial.communicate()[0]) for trial in trials) * 1e6


def watch(server: Server, stop: threading.Event, heard: list[int]) -> None:
    """Acts as an open page: asks for a curve at each change, and adds the number of changes to `heard`."""
    with contextlib.suppress(OSError):
        connection, stream = server.open("/api/v1/events")
        while not stop.is_set():
            line = stream.readline()
            if line.startswith(b'data: {"trials"'):
                server.get("/api/v1/trials/1/metrics")
                heard.append(1)
        stream.close()
        connection.close()


class Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        line = process.stdout.readline() if process.stdout else ""
        self.entrance = line.strip()
        self._token = self.entrance.rpartition("token=")[2]
        self._port = urlsplit(self.entrance).port
        self._process = psutil.Process(process.pid)

    def open(self, path: str, **headers: str) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=600)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}", **headers})
        return connection, connection.getresponse()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        connection, response = self.open(path, **headers)
        content = response.read()
        connection.close()
        if response.status != 200:
            raise ValueError(f"{path}: {content!r}")
        return response.status, content

    def number(self, path: str, name: str, **headers: str) -> int:
        return int(json.loads(self.get(path, **headers)[1])[name])

    def rss_mb(self) -> float:
        return self._process.memory_info().rss / 2**20

    def cpu_s(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system


@contextlib.contextmanager
def serving(home: Path, *options: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "core_sdk._interfaces.cli", "ui", "--no-browser", *options],
        env=os.environ | {"CORE_SDK_HOME": str(home.absolute())},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Server(process)
    finally:
        process.terminate()
        process.wait()


def show(what: str, figure: str, target: str = "") -> None:
    print(f"{what:<30} {figure:<56} {target}", flush=True)


if __name__ == "__main__":
    main()
