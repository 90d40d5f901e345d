"""`store_path` of a state dict against `torch.save` + `fsync` of the same, in turns; ratio of the medians.

    python benchmarks/store_path.py [--size-mb 1000] [--rounds 7] [--directory .]

Target: at most 1.1 times.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from core_sdk import core
from core_sdk._home.journal import JournalWriter
from core_sdk._home.storage import open_storage
from core_sdk.core import DistributedContext

TARGET_RATIO = 1.1
_NUM_TENSORS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to be measured")
    arguments = parser.parse_args()
    num_floats = arguments.size_mb * 1_000_000 // 4 // _NUM_TENSORS
    state = {f"layer.{index}.weight": torch.randn(num_floats) for index in range(_NUM_TENSORS)}

    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        measure(state, arguments.rounds, Path(scratch))


def measure(state: dict[str, torch.Tensor], num_rounds: int, scratch: Path) -> None:
    journal = JournalWriter(scratch / "1.journal")
    storage = open_storage(scratch / "checkpoints", default=scratch)
    checkpoint = core.CheckpointContext(storage, DistributedContext(), journal)
    bare, stored = [], []
    save_and_fsync(state, scratch)  # the first writes of a process are slower than all others
    for _ in range(num_rounds):
        os.sync()
        bare.append(save_and_fsync(state, scratch))
        os.sync()
        stored.append(store(state, checkpoint))
    journal.close()

    ratio = statistics.median(stored) / statistics.median(bare)
    size_mb = sum(tensor.nbytes for tensor in state.values()) / 1e6
    print(f"{size_mb:,.0f} MB, {num_rounds} rounds, medians")
    print(f"torch.save + fsync  {statistics.median(bare):7.3f} s   (from {min(bare):.3f} to {max(bare):.3f})")
    print(f"store_path          {statistics.median(stored):7.3f} s   (from {min(stored):.3f} to {max(stored):.3f})")
    print(f"ratio               {ratio:7.3f}     target: at most {TARGET_RATIO}")


def save_and_fsync(state: dict[str, torch.Tensor], scratch: Path) -> float:
    path = scratch / "bare.pt"
    start = time.perf_counter()
    torch.save(state, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    duration_s = time.perf_counter() - start
    path.unlink()
    return duration_s


def store(state: dict[str, torch.Tensor], checkpoint: core.CheckpointContext) -> float:
    start = time.perf_counter()
    with checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        torch.save(state, path / "state.pt")
    duration_s = time.perf_counter() - start
    checkpoint.delete(storage_id)
    return duration_s


if __name__ == "__main__":
    main()
