"""Measures what a workspace costs a step of a training: with its server there, with it away, and without one, in turns.

    python benchmarks/away.py --rounds 10

A step computes for about two milliseconds, and reports two metrics. Each round trains once in each of the three ways,
in an order by chance, each in a process and a home of its own. A step is measured by the clock and, since other
programs may take turns with it, by the processor time of its thread; the pusher's own time is told beside it. Target:
with the server away a step takes less than 1 % more.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from core_sdk._interfaces.lab.folder import Lab

TARGET_PERCENT = 1.0
_WAYS = ("no workspace", "server there", "server away")
_TRAINING = """
import json, statistics, sys, time
import numpy
from core_sdk import core

matrix = numpy.ones((160, 160))
steps, busy = [], []
with core.init(name="away") as context:
    for step in range(int(sys.argv[1])):
        begin, before = time.perf_counter(), time.thread_time()
        for _ in range(8):
            matrix = matrix @ matrix / 160
        context.train.report_training_metrics(step, {"loss": 1 / (step + 1), "lr": 0.1})
        steps.append(time.perf_counter() - begin)
        busy.append(time.thread_time() - before)
print(json.dumps([statistics.median(steps[100:]), statistics.median(busy[100:])]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3000)
    options = parser.parse_args()
    found: dict[str, list[Sequence[float]]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as directory:
        lab = Lab.create(Path(directory) / "lab")
        lab.add_workspace("w")
        lab.people.set_role("w", "p", "writer")
        token, _ = lab.people.issue("token", "p", None, workspace="w")
        command = [sys.executable, "-m", "core_sdk._interfaces.cli", "server", "up", str(lab.root)]
        with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as server:
            try:
                url = server.stdout.readline().strip() if server.stdout is not None else ""
                servers = {"no workspace": "", "server there": f"{url}w/w", "server away": f"{_closed_port()}/w/w"}
                for number in range(options.rounds):
                    for way in random.sample(_WAYS, len(_WAYS)):
                        home = Path(directory) / f"{number} {way}"
                        found[way].append(train(home, servers[way], token, options.steps))
            finally:
                server.terminate()
    for way in _WAYS:
        by_clock, by_processor, pusher_s = (list(each) for each in zip(*found[way], strict=True))
        bare = list(zip(*found["no workspace"], strict=True))
        figures = f"{shown(by_clock, bare[0])} by the clock, {shown(by_processor, bare[1])} of a processor"
        print(f"{way:12} {figures}, pusher {statistics.median(pusher_s):.2f} s")
    print(f"medians of {options.rounds} rounds; target with the server away: < {TARGET_PERCENT} %")


def shown(steps_s: Sequence[float], bare_s: Sequence[float]) -> str:
    more = statistics.median(ours / bare for ours, bare in zip(steps_s, bare_s, strict=True)) - 1
    return f"{1e3 * statistics.median(steps_s):.3f} ms a step ({100 * more:+.2f} %)"


def train(home: Path, server: str, token: str, num_steps: int) -> Sequence[float]:
    """Returns the median step by the clock and of a processor, and the time of the pusher, which is ended."""
    variables = {"CORE_SDK_HOME": str(home), "CORE_SDK_SERVER": server, "CORE_SDK_TOKEN": token, "CORE_SDK_QUIET": "1"}
    variables |= {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _TRAINING, str(num_steps)]
    ended = subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True, text=True)
    pusher_s = 0.0
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [""])[-1] == str(home):
            time.sleep(0.5 if server else 0)
            pusher_s += sum(process.cpu_times()[:2])
            process.kill()
    return [*json.loads(ended.stdout), pusher_s]


def _closed_port() -> str:
    """Returns an address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{bound.getsockname()[1]}"


if __name__ == "__main__":
    main()
