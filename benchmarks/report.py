"""What a report costs the training thread, against a bare encode-and-write, and against other trackers where installed.

python benchmarks/report.py [--num-reports 1000000] [--gaps-ms 1,10,100] [--gap-s 10]

First in a tight loop, then with a gap before each report, in which the processor computes over memory as a training
step does. After a gap nothing of a report is in the processor's caches, so that it costs ten times as much, and so does
the bare one, which then also makes a checksum. Both come in turns, about --gap-s seconds for each gap.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import msgspec
import torch

from core_sdk import core

NUM_TURNS = 10
Metrics = dict[str, float]
Call = Callable[[int, Metrics], object]

MEMORY = torch.zeros(1 << 20)
MATRIX = torch.zeros(256, 256)
METRICS: Metrics = {"loss": 0.123456, "accuracy": 0.98765, "learning_rate": 0.001}


class Percentiles(NamedTuple):
    p50_us: float
    p99_us: float

    def __str__(self) -> str:
        return f"p50 {self.p50_us:8.2f} µs   p99 {self.p99_us:8.2f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-reports", type=int, default=1_000_000)
    parser.add_argument("--gaps-ms", default="1,10,100")
    parser.add_argument("--gap-s", type=float, default=10.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    num_reports = arguments.num_reports
    compare_with_bare(num_reports // NUM_TURNS)
    compare_at_gaps([float(gap) for gap in arguments.gaps_ms.split(",") if gap], arguments.gap_s)
    for name, other in (("tensorboardX", tensorboard_x), ("mlflow", mlflow), ("wandb", wandb)):
        if importlib.util.find_spec(name) is None:
            print(f"{name}: not installed")
            continue
        with tempfile.TemporaryDirectory() as scratch, other(Path(scratch)) as call:
            print(f"{name:<25} {measure(call, range(2_000))}")


def compare_with_bare(reports_per_turn: int) -> None:
    bares = []
    ours = []
    memory_kb = []
    with bare_writer() as bare, core_sdk() as core_context:
        report = core_context.train.report_training_metrics
        # In turns, so that a noisy neighbour disturbs both alike.
        for turn in range(NUM_TURNS):
            steps = range(turn * reports_per_turn, (turn + 1) * reports_per_turn)
            bares.append(measure(bare, steps))
            ours.append(measure(report, steps))
            memory_kb.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        stop = measure(lambda *_: core_context.preempt.should_preempt(), range(reports_per_turn))
    print(f"bare encode + write       {medians(bares)}")
    print(f"report of 3 floats        {medians(ours)}")
    ratio = medians(ours).p50_us / medians(bares).p50_us
    print(f"ratio of p50              {ratio:.2f}   (target <= 1.9; p99 target <= 25 µs)")
    print(f"peak memory after 10 % of the reports {memory_kb[0]:,} KB, after all {memory_kb[-1]:,} KB")
    print(f"should_preempt            {stop}   (target <= 0.5 µs)")


def compare_at_gaps(gaps_ms: Sequence[float], seconds: float) -> None:
    with bare_writer(with_checksum=True) as bare, core_sdk() as core_context:
        report = core_context.train.report_training_metrics
        steps = itertools.count(1)
        for gap_ms in gaps_ms:
            num_turns = max(10, round(seconds / (2 * max(gap_ms, 0.05) / 1e3)))
            turns = [(after_gap(bare, steps, gap_ms), after_gap(report, steps, gap_ms)) for _ in range(num_turns)]
            bare_us, ours_us = (statistics.median(each) for each in zip(*turns, strict=True))
            compared = f"bare {bare_us:6.1f} µs   report {ours_us:6.1f} µs   ratio {ours_us / bare_us:.2f}"
            print(f"{gap_ms:5g} ms between reports   {compared}   (target <= 1.9)", flush=True)


def after_gap(call: Call, steps: Iterator[int], gap_ms: float) -> float:
    """Returns the microseconds of a call after a time in which the processor works on something else."""
    clock, step, metrics = time.perf_counter_ns, next(steps), METRICS
    end = clock() + gap_ms * 1e6
    while clock() < end:
        MEMORY.mul_(1.0)
        MATRIX @ MATRIX
    begin = clock()
    call(step, metrics)
    return (clock() - begin) / 1e3


def measure(call: Call, steps: range) -> Percentiles:
    clock, metrics = time.perf_counter_ns, METRICS
    durations = []
    for step in steps:
        begin = clock()
        call(step, metrics)
        durations.append(clock() - begin)
    durations.sort()
    return Percentiles(durations[len(durations) // 2] / 1e3, durations[len(durations) * 99 // 100] / 1e3)


def medians(turns: Sequence[Percentiles]) -> Percentiles:
    return Percentiles(*(statistics.median(values) for values in zip(*turns, strict=True)))


@contextlib.contextmanager
def bare_writer(*, with_checksum: bool = False) -> Iterator[Call]:
    encode = msgspec.json.Encoder().encode
    with tempfile.TemporaryFile("ab", buffering=0) as file:
        descriptor = file.fileno()

        def write(step: int, metrics: Metrics) -> None:
            line = {"group": "training", "steps_completed": step, "metrics": metrics, "time": time.time()}
            os.write(descriptor, encode(line))

        def write_with_checksum(step: int, metrics: Metrics) -> None:
            line = {"group": "training", "steps_completed": step, "metrics": metrics, "time": time.time()}
            body = encode(line)
            os.write(descriptor, b"%08x %b\n" % (google_crc32c.value(body), body))

        yield write_with_checksum if with_checksum else write


@contextlib.contextmanager
def core_sdk() -> Iterator[core.Context]:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["CORE_SDK_HOME"] = scratch
        with core.init(name="benchmark") as core_context:
            yield core_context


@contextlib.contextmanager
def tensorboard_x(scratch: Path) -> Iterator[Call]:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(scratch))
    yield lambda step, metrics: [writer.add_scalar(name, value, step) for name, value in metrics.items()]
    writer.close()


@contextlib.contextmanager
def mlflow(scratch: Path) -> Iterator[Call]:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{scratch}/mlflow.db")
    with mlflow.start_run():
        yield lambda step, metrics: mlflow.log_metrics(metrics, step=step)


@contextlib.contextmanager
def wandb(scratch: Path) -> Iterator[Call]:
    import wandb

    with wandb.init(mode="offline", dir=str(scratch)) as run:
        yield lambda step, metrics: run.log(metrics, step=step)


if __name__ == "__main__":
    main()
