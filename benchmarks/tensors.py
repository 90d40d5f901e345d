"""Measures a save by `torch.distributed.checkpoint` through us, and a safetensors export, beside doing it alone.

Each pair takes turns in one run, and the files are fsynced in both. Also measures how long it takes to list the
tensors of a large checkpoint.

python benchmarks/tensors.py [--size-mb N] [--repeats N] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from core_sdk import core
from core_sdk._ground.files import fsync_tree
from core_sdk.client import Tracker

NUM_TENSORS = 32
Work = Callable[[], object]


def timed(work: Work) -> float:
    began_at = time.perf_counter()
    work()
    return time.perf_counter() - began_at


def in_turns(name: str, ours: Work, alone: Work, clean: Work, repeats: int) -> None:
    """Prints how long both take. `clean` removes what they write, since files that stay slow down the next one."""
    times: dict[Work, list[float]] = {alone: [], ours: []}
    for _ in range(repeats + 1):
        for work, taken_s in times.items():
            taken_s.append(timed(work))
            clean()
    pairs = list(zip(times[alone][1:], times[ours][1:], strict=True))
    medians = [statistics.median(taken_s) for taken_s in zip(*pairs, strict=True)]
    ratio = statistics.median(own / other for other, own in pairs)
    print(f"{name}: alone {medians[0]:.2f} s, ours {medians[1]:.2f} s, median of the ratios {ratio:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # without a process group, dcp says that it saves alone
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        os.environ["CORE_SDK_HOME"] = f"{folder}/home"
        measure(Path(folder), options.size_mb, options.repeats)
    print("load:", *os.getloadavg())


def measure(folder: Path, size_mb: int, repeats: int) -> None:
    from safetensors.torch import save_file

    state = {f"layer.{number}": torch.rand(size_mb * 250_000 // NUM_TENSORS) for number in range(NUM_TENSORS)}
    alone, exported = folder / "alone", folder / "exported"
    with core.init(name="tensors", checkpoint_storage=str(folder / "storage")) as context:
        saved: list[str] = []

        def save() -> None:
            writer = context.checkpoint.dcp_writer({"steps_completed": 1})
            dcp.save(state, storage_writer=writer)  # type: ignore[attr-defined]
            saved.append(str(writer.storage_id))

        def save_alone() -> None:
            dcp.save(state, storage_writer=FileSystemWriter(alone))  # type: ignore[attr-defined]

        def clean() -> None:
            while saved:
                context.checkpoint.delete(saved.pop())
            for directory in (alone, exported):
                shutil.rmtree(directory, ignore_errors=True)

        in_turns("dcp.save", save, save_alone, clean, repeats)
        save()
        print(f"names and shapes, dcp: {timed(Tracker().get_checkpoint(saved[0]).tensors):.3f} s")
        clean()
        with context.checkpoint.store_path({"steps_completed": 2}) as (path, storage_id):
            torch.save(state, path / "model.pt")
        checkpoint = Tracker().get_checkpoint(storage_id)
        print(f"names and shapes, torch.save: {timed(checkpoint.tensors):.3f} s")

        def export_alone() -> None:
            alone.mkdir()
            save_file(state, alone / "model.safetensors")
            fsync_tree(alone)

        in_turns("export", lambda: checkpoint.export(exported), export_alone, clean, repeats)


if __name__ == "__main__":
    main()
