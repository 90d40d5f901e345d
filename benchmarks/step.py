"""Measures what everything together costs a step of a loop of one's own, beside the bare loop, in turns.

    python benchmarks/step.py [--blocks 20] [--step-ms 10] [--parameters 1000000]

A step computes for about --step-ms. The bare loop takes its batches from a DataLoader with two workers. The other one
takes them through `loop.resumable()`, reports and asks `should_preempt()` in each step, and after each block of 100
steps saves its state in the background. Target: at most 0.3 % slower, by the median of the blocks.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import core, loop

TARGET_PERCENT = 0.3
BLOCK_STEPS = 100
_BATCH_SIZE = 32
_WIDTH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn((arguments.blocks + 2) * BLOCK_STEPS * _BATCH_SIZE, 64))
    matrix = torch.randn(_WIDTH, _WIDTH)
    rounds = rounds_of(matrix, arguments.step_ms / 1e3)
    model = torch.nn.Linear(1000, max(1, arguments.parameters // 1000))
    plain = iter(DataLoader(data, _BATCH_SIZE, shuffle=True, num_workers=2))
    loader = loop.resumable(DataLoader(data, _BATCH_SIZE, shuffle=True, num_workers=2), seed=0)
    state = loop.State(model=model, loader=loader)
    batches, steps = loader.stream(), itertools.count(1)
    bare, full, saves = [], [], []
    with core.init() as context:
        for block in range(arguments.blocks + 1):
            seconds = block_of(plain, matrix, rounds), block_with_everything(batches, matrix, rounds, context, steps)
            begin = time.perf_counter()
            state.save(context, wait=False)
            blocked = time.perf_counter() - begin
            if block > 0:  # workers and caches are warm
                bare.append(seconds[0])
                full.append(seconds[1] + blocked)
                saves.append(blocked)
    step_ms = statistics.median(bare) / BLOCK_STEPS * 1e3
    percent = 100 * (statistics.median(ours / theirs for theirs, ours in zip(bare, full, strict=True)) - 1)
    without = statistics.median(ours - save - theirs for theirs, ours, save in zip(bare, full, saves, strict=True))
    print(f"a bare step                       {step_ms:8.3f} ms")
    print(f"a report, a stop asked, a batch   {without / BLOCK_STEPS * 1e6:+8.1f} µs a step")
    saved = f"a save of {model.weight.numel():,} parameters"
    print(f"{saved:<33} {statistics.median(saves) * 1e3:8.2f} ms blocked, once in {BLOCK_STEPS} steps")
    print(f"all together                      {percent:+8.2f} %   (target <= {TARGET_PERCENT} %)")


def rounds_of(matrix: torch.Tensor, step_s: float) -> int:
    """Returns how many multiplications take as long as a step."""
    begin = time.perf_counter()
    compute(matrix, 500)
    return max(1, round(step_s / ((time.perf_counter() - begin) / 500)))


def compute(matrix: torch.Tensor, rounds: int) -> float:
    for _ in range(rounds):
        product = matrix @ matrix
    return float(product[0, 0])


def block_of(batches: Iterator[Any], matrix: torch.Tensor, rounds: int) -> float:
    begin = time.perf_counter()
    for _ in range(BLOCK_STEPS):
        next(batches)
        compute(matrix, rounds)
    return time.perf_counter() - begin


def block_with_everything(
    batches: Iterator[Any], matrix: torch.Tensor, rounds: int, context: core.Context, steps: Iterator[int]
) -> float:
    begin = time.perf_counter()
    for _ in range(BLOCK_STEPS):
        next(batches)
        loss = compute(matrix, rounds)
        context.train.report_training_metrics(next(steps), {"loss": loss})
        context.preempt.should_preempt()
    return time.perf_counter() - begin


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=".") as home:
        os.environ |= {"CORE_SDK_HOME": home, "CORE_SDK_QUIET": "1"}
        main()
