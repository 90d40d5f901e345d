"""Checkpoints to and from an emulator of Google's storage, against Google's own library in the same run.

    python benchmarks/clouds.py large  [--size-mb 1000] [--rounds 3]     4 files, against transfer_manager
    python benchmarks/clouds.py small  [--files 10000] [--latency-ms 30] 10 KB each, against one after another
    python benchmarks/clouds.py memory [--size-mb 2000]                  peak memory above idle, one file
    python benchmarks/clouds.py checksums [--size-mb 1000]               their share of the time of an upload
    python benchmarks/clouds.py steps  [--size-mb 500]                   step time while one is sent with wait=False

Without a word, all five. Targets: at least 0.9 times transfer_manager's speed; at least 5 times one after another; less
than 300 MB; less than 10 %; at most 5 % longer steps, over a line of 50 MB/s. Network and store are on this machine:
`--latency-ms` is what each request takes longer, through a proxy, as it would in a cloud.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # where the servers are

import torch
from background import step
from buckets.faults import latency
from buckets.gcs import GcsServer, start_fake_gcs_server
from buckets.proxy import start_proxy
from buckets.strict_gcs import start_strict_gcs
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as gcs
from google.cloud.storage import transfer_manager
from saving import upload

from core_sdk._home.journal import JournalWriter
from core_sdk._home.storage import storage_from_url
from core_sdk._home.storage._checksum import checksum, in_threads
from core_sdk.core import CheckpointContext, DistributedContext

METADATA = {"steps_completed": 1}
_NUM_LARGE = 4
_SMALL_BYTES = 10_000
_LINE_BYTES_PER_S = 50_000_000
# One after another takes long: a part of the files tells how long.
_NUM_ONE_BY_ONE = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["large", "small", "memory", "checksums", "steps", "one-upload"])
    parser.add_argument("--size-mb", type=int)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=30.0)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "one-upload":
        upload_and_tell_memory(arguments.url, arguments.source)
        return
    with tempfile.TemporaryDirectory() as scratch, start_strict_gcs() as server:
        os.environ.update(server.variables())
        if arguments.what in (None, "large"):
            measure_large(server.make_bucket(), (arguments.size_mb or 1000), arguments.rounds, Path(scratch))
        if arguments.what in (None, "checksums"):
            measure_checksums(server.make_bucket(), (arguments.size_mb or 1000), arguments.rounds, Path(scratch))
        if arguments.what in (None, "memory"):
            measure_memory(server.make_bucket(), (arguments.size_mb or 2000), Path(scratch))
        if arguments.what in (None, "small"):
            with start_fake_gcs_server() as small_server, proxy(small_server, arguments.latency_ms / 1000) as address:
                os.environ.update(small_server.variables(address))
                measure_small(small_server.make_bucket(), arguments.files, Path(scratch))
        if arguments.what in (None, "steps"):
            with proxy(server, bytes_per_s=_LINE_BYTES_PER_S) as address:
                os.environ.update(server.variables(address))
                measure_steps(server.make_bucket(), (arguments.size_mb or 500), Path(scratch))


def measure_large(url: str, size_mb: int, num_rounds: int, scratch: Path) -> None:
    with files(scratch, _NUM_LARGE, size_mb * 1_000_000 // _NUM_LARGE) as source:
        bare, ours = [], []
        for _ in range(num_rounds):
            bare.append(with_transfer_manager(url, source, scratch))
            ours.append(with_core_sdk(url, source, scratch))
    print(f"{size_mb:,} MB in {_NUM_LARGE} files, medians of {num_rounds}: MB/s")
    for index, direction in enumerate(("up", "down")):
        bare_s, ours_s = (statistics.median(times[index] for times in kind) for kind in (bare, ours))
        print(
            f"  {direction:5} transfer_manager {size_mb / bare_s:7.0f}   Core SDK {size_mb / ours_s:7.0f}   "
            f"ratio {bare_s / ours_s:5.2f}     target: at least 0.9"
        )


def with_transfer_manager(url: str, source: Path, scratch: Path) -> tuple[float, float]:
    bucket = client_bucket(url)
    names = sorted(path.name for path in source.iterdir())
    up_s = timed(
        lambda: transfer_manager.upload_many_from_filenames(
            bucket, names, source_directory=str(source), worker_type="thread", raise_exception=True
        )
    )
    with tempfile.TemporaryDirectory(dir=scratch) as target:
        down_s = timed(
            lambda: transfer_manager.download_many_to_path(
                bucket, names, destination_directory=target, worker_type="thread", raise_exception=True
            )
        )
    bucket.delete_blobs([bucket.blob(name) for name in names])
    return up_s, down_s


def with_core_sdk(url: str, source: Path, scratch: Path) -> tuple[float, float]:
    with contextlib.closing(storage_from_url(url)) as storage:
        up_s = timed(lambda: upload(storage, "a", source, METADATA))
        with tempfile.TemporaryDirectory(dir=scratch) as target:
            down_s = timed(lambda: storage.download("a", Path(target)))
        storage.delete("a")
    return up_s, down_s


def measure_checksums(url: str, size_mb: int, num_rounds: int, scratch: Path) -> None:
    """Measures what is added to a bare upload: both hashes over each file from the page cache, before it is sent."""
    shares = []
    with files(scratch, _NUM_LARGE, size_mb * 1_000_000 // _NUM_LARGE) as source:
        for _ in range(num_rounds):
            checksums_s = timed(lambda: all_checksums(source))
            shares.append(checksums_s / with_core_sdk(url, source, scratch)[0])
    print(
        f"{size_mb:,} MB: checksums are {100 * statistics.median(shares):.1f} % of an upload     target: less than 10 %"
    )


def all_checksums(source: Path) -> None:
    with in_threads(checksum, sorted(source.iterdir())) as entries:
        list(entries)


def measure_memory(url: str, size_mb: int, scratch: Path) -> None:
    with files(scratch, 1, size_mb * 1_000_000) as source:
        command = [sys.executable, __file__, "one-upload", "--url", url, "--source", str(source)]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(f"{size_mb:,} MB in one file: {output.strip()}     target: less than 300 MB")


def upload_and_tell_memory(url: str, source: Path) -> None:
    with contextlib.closing(storage_from_url(url)) as storage:
        storage.check_writable()
        idle_mb = memory_mb("VmRSS")
        upload(storage, "a", source, METADATA)
        up_mb = memory_mb("VmHWM")
        storage.verify("a")
        print(f"{up_mb - idle_mb:.0f} MB above idle up, {memory_mb('VmHWM') - idle_mb:.0f} MB up and down")
        storage.delete("a")


def measure_small(url: str, num_files: int, scratch: Path) -> None:
    with files(scratch, num_files, _SMALL_BYTES) as source:
        up_s, down_s = (seconds / num_files for seconds in with_core_sdk(url, source, scratch))
        bucket, names = client_bucket(url), [path.name for path in sorted(source.iterdir())[:_NUM_ONE_BY_ONE]]
        bare_up_s = timed(lambda: [bucket.blob(name).upload_from_filename(source / name) for name in names])
        target = scratch / "one"
        bare_down_s = timed(lambda: [bucket.blob(name).download_to_filename(target) for name in names])
    print(f"{num_files:,} files of 10 KB: files/s (one after another: {len(names)} of them)")
    for direction, ours_s, bare_s in (("up", up_s, bare_up_s / len(names)), ("down", down_s, bare_down_s / len(names))):
        print(
            f"  {direction:5} one after another {1 / bare_s:6.0f}   Core SDK {1 / ours_s:6.0f}   "
            f"ratio {bare_s / ours_s:5.2f}     target: at least 5"
        )


def measure_steps(url: str, size_mb: int, scratch: Path) -> None:
    torch.set_num_threads(1)  # a save needs a core beside the one that trains
    weight = torch.randn(384, 384, requires_grad=True)
    alone: list[float] = []
    beside: list[float] = []
    with contextlib.closing(JournalWriter(scratch / "1.journal")) as journal:
        checkpoint = CheckpointContext(storage_from_url(url), DistributedContext(), journal)
        with files(scratch, _NUM_LARGE, size_mb * 1_000_000 // _NUM_LARGE) as source:
            alone += [step(weight) for _ in range(500)]
            storage_id = checkpoint.upload(source, METADATA, wait=False)
        sent = threading.Thread(target=lambda: checkpoint.get_metadata(storage_id))
        sent.start()
        while sent.is_alive():
            beside.append(step(weight))
        alone += [step(weight) for _ in range(500)]
        checkpoint.delete(storage_id)
    ratio = statistics.median(beside) / statistics.median(alone)
    print(
        f"{size_mb:,} MB sent beside {len(beside):,} steps: {statistics.median(beside) * 1e3:.2f} ms, "
        f"alone {statistics.median(alone) * 1e3:.2f} ms, ratio {ratio:.3f} of medians, "
        f"{statistics.mean(beside) / statistics.mean(alone):.3f} of means     target: at most 1.05"
    )


@contextlib.contextmanager
def proxy(server: GcsServer, latency_s: float = 0.0, bytes_per_s: float | None = None) -> Iterator[tuple[str, int]]:
    """In a process of its own, so that it does not wait for the interpreter's lock with the client."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_serve, args=(server.address, latency_s, bytes_per_s, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _serve(
    upstream: tuple[str, int], latency_s: float, bytes_per_s: float | None, connection: Connection[Any, Any]
) -> None:
    with start_proxy(upstream, bytes_per_s) as proxy:
        if latency_s:
            proxy.fault(lambda request: True, latency(latency_s))
        connection.send(proxy.address)
        connection.recv()


@contextlib.contextmanager
def files(scratch: Path, num_files: int, size_bytes: int) -> Iterator[Path]:
    """Files of different contents, in the page cache."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        content = random.Random(1).randbytes(min(size_bytes, 1 << 20))
        for index in range(num_files):
            with (Path(directory) / f"{index:05}.bin").open("wb") as file:
                for block in range(-(-size_bytes // len(content))):
                    head = index.to_bytes(4, "big") + block.to_bytes(4, "big")
                    file.write((head + content[8:])[: size_bytes - block * len(content)])
        yield Path(directory)


def client_bucket(url: str) -> Any:
    client = gcs.Client(project="benchmarks", credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    return client.bucket(url.removeprefix("gs://").partition("/")[0])


def memory_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(field))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
