"""Verification of a checkpoint against the bare CRC-32C over the same bytes in memory; GB/s, in turns, medians.

    python benchmarks/verify.py [--size-mb 1000] [--files 8] [--rounds 7] [--directory .]

The files are in the page cache: what is measured is the price of verifying, not the disk. Target: at least 3 GB/s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import google_crc32c

from core_sdk._home.storage import DirectoryStorage, unite

TARGET_GB_PER_S = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, default=Path())
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        measure(arguments.size_mb, arguments.files, arguments.rounds, Path(scratch))


def measure(size_mb: int, num_files: int, num_rounds: int, scratch: Path) -> None:
    content = os.urandom(size_mb * 1_000_000 // num_files)
    storage = DirectoryStorage(scratch)
    for storage_id, count in (("one", 1), ("many", num_files)):
        with storage.stage(storage_id) as staging:
            for index in range(count):
                (staging.path / f"{index}.bin").write_bytes(content * (num_files // count))
            shard = staging.seal()
            staging.contribute(list(shard.files), staging.address)
            staging.commit(unite([shard]), {})
    whole = content * num_files
    num_bytes = len(whole)

    def bare() -> None:
        google_crc32c.value(whole)

    def read_and_bare() -> None:
        google_crc32c.value((scratch / "one" / "0.bin").read_bytes())

    works: dict[str, Callable[[], object]] = {
        "bare CRC-32C, in memory": bare,
        "read + bare CRC-32C": read_and_bare,
        "verify, 1 file": lambda: storage.verify("one"),
        f"verify, {num_files} files": lambda: storage.verify("many"),
    }
    durations_s: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(num_rounds):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            durations_s[name].append(time.perf_counter() - start)

    print(f"{num_bytes / 1e6:,.0f} MB from the page cache, {num_rounds} rounds, medians")
    for name, durations in durations_s.items():
        print(f"{name:25}{num_bytes / statistics.median(durations) / 1e9:6.2f} GB/s")
    print(f"target: at least {TARGET_GB_PER_S} GB/s")


if __name__ == "__main__":
    main()
