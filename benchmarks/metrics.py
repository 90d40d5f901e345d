"""Measures what reading all points of a trial costs, beside json.loads of each line of the same journal.

python benchmarks/metrics.py [--num-reports 100000]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from core_sdk import client, core
from core_sdk._home import Home, open_view
from core_sdk._interfaces.cli.trial.reports import print_reports, reports_of
from core_sdk._interfaces.render.output import Form

NUM_TURNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-reports", type=int, default=100_000)
    num_reports = parser.parse_args().num_reports
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["CORE_SDK_HOME"] = scratch
        with core.init(name="benchmark") as context:
            for step in range(num_reports):
                context.train.report_training_metrics(step, {"loss": 0.1 + step, "accuracy": step / 7, "rate": 1e-3})
        (journal,) = Path(scratch).glob("runs/*/1.journal")
        home = Home(Path(scratch))
        trial = client.get_trial(1)

        def parse() -> None:
            for line in journal.read_bytes().splitlines():
                json.loads(line.partition(b" ")[2])

        def print_json() -> None:
            with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), open_view(home) as view:
                print_reports(reports_of(view, 1), Form(is_json=True), with_superseded=False, num_last=10)

        trial.metrics_frame()  # fills the index
        works: dict[str, Callable[[], object]] = {
            "json.loads of the journal": parse,
            "trial metrics --json": print_json,
            "metrics_frame()": trial.metrics_frame,
        }
        # In turns, so that a noisy neighbour disturbs all alike.
        turns = [{name: seconds(work) for name, work in works.items()} for _ in range(NUM_TURNS)]
    bare = min(turn["json.loads of the journal"] for turn in turns)
    for name in works:
        least = min(turn[name] for turn in turns)
        print(f"{name:<26} {least / num_reports * 1e6:6.2f} µs a report   {least / bare:.2f} x json.loads")


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
