"""What a report costs the training thread, against a bare encode-and-write, and against other trackers where installed.

python benchmarks/report.py [--num-reports 1000000]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from core_sdk import core

NUM_TURNS = 10
Call = Callable[[int], object]

METRICS = {"loss": 0.123456, "accuracy": 0.98765, "learning_rate": 0.001}


class Percentiles(NamedTuple):
    p50_us: float
    p99_us: float

    def __str__(self) -> str:
        return f"p50 {self.p50_us:8.2f} µs   p99 {self.p99_us:8.2f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-reports", type=int, default=1_000_000)
    num_reports = parser.parse_args().num_reports
    compare_with_bare(num_reports // NUM_TURNS)
    go_back(2 * num_reports)
    go_down_in_layouts(num_reports // 50)
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
            ours.append(measure(lambda step: report(step, METRICS), steps))
            memory_kb.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        stop = measure(lambda _: core_context.preempt.should_preempt(), range(reports_per_turn))
    print(f"bare encode + write       {medians(bares)}")
    print(f"report of 3 floats        {medians(ours)}")
    ratio = medians(ours).p50_us / medians(bares).p50_us
    print(f"ratio of p50              {ratio:.2f}   (target <= 2; p99 target <= 25 µs)")
    print(f"peak memory after 10 % of the reports {memory_kb[0]:,} KB, after all {memory_kb[-1]:,} KB")
    print(f"should_preempt            {stop}   (target <= 0.5 µs)")


def go_back(num_reports: int) -> None:
    """What a report costs that goes back in steps, the first of its group."""
    with core_sdk() as core_context:
        report = core_context.train.report_training_metrics
        for step in range(num_reports):
            report(2 * step, METRICS)
        memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        durations = measure_each(lambda step: report(step, METRICS), range(1, 2 * num_reports, 2_000))
        memory_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kb
    p99 = sorted(durations)[len(durations) * 99 // 100]
    first_us, p99_us = durations[0] / 1e3, p99 / 1e3
    print(f"back after {num_reports:<14,} first {first_us:5.2f} µs   p99 {p99_us:8.2f} µs   (target <= 1,000 µs)")
    print(f"memory for going back     {memory_kb:,} KB")


def go_down_in_layouts(num_reports: int, num_layouts: int = 1_200) -> None:
    """Measures reports at falling steps, each with a metric that all have and one that every 1,200th has."""
    layouts = [{"loss": 0.1, f"loss {index}": 0.1} for index in range(num_layouts)]
    with core_sdk() as core_context:
        report = core_context.train.report_training_metrics
        percentiles = measure(
            lambda step: report(step, layouts[step % num_layouts]), range(num_reports, num_reports // 10, -1)
        )
    print(f"down in {num_layouts:,} layouts     {percentiles}   (target <= 100 µs)")


def measure(call: Call, steps: range) -> Percentiles:
    durations = sorted(measure_each(call, steps))
    return Percentiles(durations[len(durations) // 2] / 1e3, durations[len(durations) * 99 // 100] / 1e3)


def measure_each(call: Call, steps: range) -> list[int]:
    clock = time.perf_counter_ns
    durations = []
    for step in steps:
        begin = clock()
        call(step)
        durations.append(clock() - begin)
    return durations


def medians(turns: Sequence[Percentiles]) -> Percentiles:
    return Percentiles(*(statistics.median(values) for values in zip(*turns, strict=True)))


@contextlib.contextmanager
def bare_writer() -> Iterator[Call]:
    encode = msgspec.json.Encoder().encode
    with tempfile.TemporaryFile("ab", buffering=0) as file:
        descriptor = file.fileno()

        def write(step: int) -> None:
            line = {"group": "training", "steps_completed": step, "metrics": METRICS, "time": time.time()}
            os.write(descriptor, encode(line))

        yield write


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
    yield lambda step: [writer.add_scalar(name, value, step) for name, value in METRICS.items()]
    writer.close()


@contextlib.contextmanager
def mlflow(scratch: Path) -> Iterator[Call]:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{scratch}/mlflow.db")
    with mlflow.start_run():
        yield lambda step: mlflow.log_metrics(METRICS, step=step)


@contextlib.contextmanager
def wandb(scratch: Path) -> Iterator[Call]:
    import wandb

    with wandb.init(mode="offline", dir=str(scratch)) as run:
        yield lambda step: run.log(METRICS, step=step)


if __name__ == "__main__":
    main()
