"""Measures what a training pays for saves in the background to a directory: ratios of medians, in turns.

    python benchmarks/background.py [--size-mb 256] [--state-mb 200] [--rounds 5] [--directory .] [--device cpu]

1. Step time with a save in flight, against step time alone. Target: at most 1.05 times. What the training
   thread itself pays, the staging write, is shown beside it.
2. Time for which `State.save(wait=False)` blocks, against a copy of the same tensors into memory that is there already.
   Target: at most 1.1 times. `torch.distributed.checkpoint.async_save` of the same state is shown beside it. With
   `--device cuda` the tensors are there, and the memory is pinned.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed
from torch.distributed.checkpoint.state_dict_saver import async_save

from core_sdk import core
from core_sdk._home.journal import JournalWriter
from core_sdk._home.storage import open_storage
from core_sdk._runtime.backends import usual_backend
from core_sdk.core import DistributedContext
from core_sdk.loop import State

TARGET_RATIO = 1.05
BLOCKING_TARGET_RATIO = 1.1
_MATRIX_SIZE = 384
_NUM_FILES = 16
_NUM_TENSORS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=256)
    parser.add_argument("--state-mb", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to be measured")
    parser.add_argument("--device", default="cpu", help="of the state that is saved: cpu or cuda")
    arguments = parser.parse_args()
    # A save needs a core beside the one that trains.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        measure(arguments.size_mb, arguments.rounds, Path(scratch))
        measure_blocking(arguments.state_mb, arguments.rounds, Path(scratch), torch.device(arguments.device))


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


def measure_blocking(state_mb: int, num_rounds: int, scratch: Path, device: torch.device) -> None:
    num_floats = state_mb * 1_000_000 // 4 // _NUM_TENSORS
    tensors = {f"layer.{index}.weight": torch.randn(num_floats, device=device) for index in range(_NUM_TENSORS)}
    is_cuda = device.type == "cuda"
    buffers = {name: torch.empty(num_floats, pin_memory=is_cuda).zero_() for name in tensors}
    synchronize: Callable[[], object] = torch.cuda.synchronize if is_cuda else lambda: None
    backend = usual_backend(is_cuda)
    torch.distributed.init_process_group(backend, init_method=f"file://{scratch}/rendezvous", rank=0, world_size=1)
    copying: list[float] = []
    saving: list[float] = []
    saving_dcp: list[float] = []
    with core.init(name="background", checkpoint_storage=str(scratch / "states")) as core_context:
        state = State(tensors=tensors)
        for index in range(num_rounds + 1):  # the first round takes memory
            synchronize()
            begun_at = time.perf_counter()
            for name, tensor in tensors.items():
                buffers[name].copy_(tensor, non_blocking=True)
            synchronize()
            copying.append(time.perf_counter() - begun_at)

            begun_at = time.perf_counter()
            storage_id = state.save(core_context, steps_completed=index, wait=False)
            saving.append(time.perf_counter() - begun_at)
            core_context.checkpoint.delete(storage_id)
            os.sync()

            begun_at = time.perf_counter()
            future = async_save(tensors, checkpoint_id=scratch / "dcp")
            saving_dcp.append(time.perf_counter() - begun_at)
            future.result()  # type: ignore[union-attr]
            os.sync()
    torch.distributed.destroy_process_group()

    copy_s, save_s, dcp_s = (statistics.median(times_s[1:]) for times_s in (copying, saving, saving_dcp))
    print(f"\n{state_mb} MB of state on {device}, {num_rounds} rounds, medians of how long the training is blocked")
    print(f"copy of the tensors        {copy_s * 1e3:8.2f} ms")
    print(f"State.save(wait=False)     {save_s * 1e3:8.2f} ms   (the first {saving[0] * 1e3:.2f})")
    print(f"dcp.async_save             {dcp_s * 1e3:8.2f} ms   (the first {saving_dcp[0] * 1e3:.2f})")
    print(f"ratio to the copy          {save_s / copy_s:8.3f}      target: at most {BLOCKING_TARGET_RATIO}")
    print(f"ratio to dcp.async_save    {save_s / dcp_s:8.3f}")


def step(weight: torch.Tensor) -> float:
    """Runs a forward and a backward pass of a few milliseconds."""
    begun_at = time.perf_counter()
    loss = (weight @ weight).tanh().square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        weight -= 0.01 * weight.grad  # type: ignore[operator]
    weight.grad = None
    return time.perf_counter() - begun_at


if __name__ == "__main__":
    main()
