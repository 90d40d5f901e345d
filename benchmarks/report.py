"""What a report costs the training thread, against a bare encode-and-write, and against other trackers where installed.

python benchmarks/report.py [--num-reports 1000000]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from core_sdk import core

METRICS = {"loss": 0.123456, "accuracy": 0.98765, "learning_rate": 0.001}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-reports", type=int, default=1_000_000)
    num_reports: int = parser.parse_args().num_reports
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["CORE_SDK_HOME"] = scratch
        descriptor = os.open(Path(scratch, "bare"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        encode = msgspec.json.Encoder().encode

        def bare(step: int) -> None:
            line = {"group": "training", "steps_completed": step, "metrics": METRICS, "time": time.time()}
            os.write(descriptor, encode(line))

        with core.init(name="benchmark") as core_context:
            report = core_context.train.report_training_metrics
            ours: list[tuple[float, float, float]] = []
            bares: list[tuple[float, float, float]] = []
            chunk = num_reports // 10
            memory_kb = []
            # In turns, so that a noisy neighbour disturbs both alike.
            for turn in range(10):
                bares.append(percentiles_us(bare, range(turn * chunk, (turn + 1) * chunk)))
                ours.append(percentiles_us(lambda step: report(step, METRICS), range(turn * chunk, (turn + 1) * chunk)))
                memory_kb.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            stop = percentiles_us(lambda _: core_context.preempt.should_preempt(), range(chunk))
        bare_p50, ours_p50 = median(p50 for p50, _, _ in bares), median(p50 for p50, _, _ in ours)
        print(f"bare encode + write       p50 {bare_p50:6.2f} µs   p99 {median(p[1] for p in bares):6.2f} µs")
        print(f"report of 3 floats        p50 {ours_p50:6.2f} µs   p99 {median(p[1] for p in ours):6.2f} µs")
        print(f"ratio of p50              {ours_p50 / bare_p50:.2f}   (target <= 2; p99 target <= 25 µs)")
        print(f"peak memory after 10 % of the reports {memory_kb[0]:,} KB, after all {memory_kb[-1]:,} KB")
        print(f"should_preempt            p50 {stop[0]:6.2f} µs   p99 {stop[1]:6.2f} µs   (target <= 0.5 µs)")
    for name, make in (("tensorboardX", tensorboard_x), ("mlflow", mlflow), ("wandb", wandb)):
        if importlib.util.find_spec(name) is None:
            print(f"{name}: not installed")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            p50, p99, _ = percentiles_us(make(Path(scratch)), range(2_000))
            print(f"{name:<25} p50 {p50:6.2f} µs   p99 {p99:6.2f} µs")


def percentiles_us(call: Callable[[int], object], steps: range) -> tuple[float, float, float]:
    """p50, p99 and the slowest call."""
    clock = time.perf_counter_ns
    durations = []
    for step in steps:
        begin = clock()
        call(step)
        durations.append(clock() - begin)
    durations.sort()
    return durations[len(durations) // 2] / 1e3, durations[len(durations) * 99 // 100] / 1e3, durations[-1] / 1e3


def median(values: object) -> float:
    ordered = sorted(values)  # type: ignore[call-overload]
    return float(ordered[len(ordered) // 2])


def tensorboard_x(scratch: Path) -> Callable[[int], object]:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(scratch))
    return lambda step: [writer.add_scalar(name, value, step) for name, value in METRICS.items()]


def mlflow(scratch: Path) -> Callable[[int], object]:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{scratch}/mlflow.db")
    mlflow.start_run()
    return lambda step: mlflow.log_metrics(METRICS, step=step)


def wandb(scratch: Path) -> Callable[[int], object]:
    import wandb

    run = wandb.init(mode="offline", dir=str(scratch))
    return lambda step: run.log(METRICS, step=step)


if __name__ == "__main__":
    main()
