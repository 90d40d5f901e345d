"""Kills reporting processes with `kill -9` at random moments and counts the reports that had returned and are gone.

    python benchmarks/report_kills.py [--kills 1000] [--seed 0]

Exits with 1 if a single report is lost, doubled or altered.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from core_sdk.journal import read_records
from core_sdk.records import Report, metrics_from_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    moments = random.Random(arguments.seed)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["core_sdk.core"])
    num_acknowledged = num_lost = num_wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for kill in range(arguments.kills):
            home = Path(scratch, str(kill))
            reader, writer = processes.Pipe(duplex=False)
            child = processes.Process(target=report_until_killed, args=(home, writer))
            child.start()
            writer.close()
            reader.recv_bytes()  # reporting has begun
            time.sleep(moments.uniform(0, 0.02))
            os.kill(child.pid or 0, signal.SIGKILL)
            acknowledged = last_acknowledged(reader)
            child.join()
            lost, wrong = compare(home, acknowledged)
            num_acknowledged += acknowledged
            num_lost += lost
            num_wrong += wrong
    print(
        f"{arguments.kills} kills: {num_acknowledged:,} acknowledged, {num_lost} lost, {num_wrong} doubled or altered"
    )
    sys.exit(1 if num_lost or num_wrong else 0)


def report_until_killed(home: Path, acknowledge: Connection) -> None:
    os.environ["CORE_SDK_HOME"] = str(home)
    from core_sdk import core

    with core.init(name="kills") as core_context:
        acknowledge.send_bytes(b"begun")
        descriptor = acknowledge.fileno()
        for step in range(1, sys.maxsize):
            core_context.train.report_training_metrics(step, {"value": step / 7, "step": step})
            os.write(descriptor, step.to_bytes(8, "big"))


def last_acknowledged(reader: Connection) -> int:
    """The step of the last whole acknowledgement in the pipe, which outlives its writer."""
    content = b""
    while block := os.read(reader.fileno(), 1 << 20):
        content += block
    num_whole = len(content) // 8
    return int.from_bytes(content[(num_whole - 1) * 8 : num_whole * 8], "big") if num_whole else 0


def compare(home: Path, acknowledged: int) -> tuple[int, int]:
    """How many acknowledged reports are missing, and how many are there twice or otherwise than they were."""
    steps = []
    num_altered = 0
    for record in read_records(home / "runs" / "1" / "1.journal"):
        if isinstance(record, Report):
            steps.append(record.steps_completed)
            expected = {"value": record.steps_completed / 7, "step": record.steps_completed}
            num_altered += metrics_from_json(record.metrics) != expected
    num_lost = len(set(range(1, acknowledged + 1)) - set(steps))
    return num_lost, num_altered + len(steps) - len(set(steps))


if __name__ == "__main__":
    main()
