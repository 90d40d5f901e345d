"""Step time of a training with and without a background save in flight to a directory; ratio of the medians.

    python benchmarks/background.py [--size-mb 256] [--rounds 5] [--directory .]

Target: at most 1.05 times. What the training thread itself pays, the staging write, is shown beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from core_sdk import core
from core_sdk.core import DistributedContext
from core_sdk.journal import JournalWriter
from core_sdk.storage import open_storage

TARGET_RATIO = 1.05
_MATRIX_SIZE = 384
_NUM_FILES = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to be measured")
    arguments = parser.parse_args()
    # A save needs a core beside the one that trains.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        measure(arguments.size_mb, arguments.rounds, Path(scratch))


def measure(size_mb: int, num_rounds: int, scratch: Path) -> None:
    part = os.urandom(size_mb * 1_000_000 // _NUM_FILES)
    weight = torch.randn(_MATRIX_SIZE, _MATRIX_SIZE, requires_grad=True)
    alone: list[float] = []
    beside: list[float] = []
    staging_s: list[float] = []
    num_in_flight = []
    with contextlib.closing(JournalWriter(scratch / "1.journal")) as journal:
        storage = open_storage(scratch / "checkpoints", default=scratch)
        checkpoint = core.CheckpointContext(storage, DistributedContext(), journal)
        for _ in range(num_rounds):
            begun_at = time.perf_counter()
            with checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, storage_id):
                for index in range(_NUM_FILES):
                    (path / f"{index}.bin").write_bytes(part)
            staging_s.append(time.perf_counter() - begun_at)
            num_before = len(beside)
            while not (scratch / "checkpoints" / storage_id).exists():
                beside.append(step(weight))
            num_in_flight.append(len(beside) - num_before)
            checkpoint.wait()
            checkpoint.delete(storage_id)
            os.sync()
            alone += [step(weight) for _ in range(num_in_flight[-1])]

    ratio = statistics.median(beside) / statistics.median(alone)
    print(f"{size_mb} MB, {num_rounds} saves, {min(num_in_flight)} to {max(num_in_flight)} steps during each; medians")
    print(f"staging write         {statistics.median(staging_s) * 1e3:8.2f} ms, once per save")
    for name, steps_s in (("nothing beside", alone), ("save in flight", beside)):
        median_ms, mean_ms = statistics.median(steps_s) * 1e3, statistics.mean(steps_s) * 1e3
        print(f"step, {name}  {median_ms:8.2f} ms   (mean {mean_ms:.2f})")
    print(f"ratio                 {ratio:8.3f}      target: at most {TARGET_RATIO}")


def step(weight: torch.Tensor) -> float:
    """A few milliseconds of forward and backward pass."""
    begun_at = time.perf_counter()
    loss = (weight @ weight).tanh().square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        weight -= 0.01 * weight.grad  # type: ignore[operator]
    weight.grad = None
    return time.perf_counter() - begun_at


if __name__ == "__main__":
    main()
