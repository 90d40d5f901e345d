"""Measures what the machine's figures cost that every training records by default, on one rank.

    python benchmarks/figures.py [SAMPLES]

The time of the processor of the thread that samples, for each sample, also as a share of a core at one sample in 15 s.
What is loaded for the first sample is shown beside it, and what the start of the thread takes from `init()`. The target
is a share of at most 0.2 %.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from core_sdk._home.journal import JournalWriter
from core_sdk.core._profiler import UsualFigures
from core_sdk.core._profiler._collector import Means

INTERVAL_S = 15.0
TARGET = 0.002


def main() -> None:
    num_samples = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as directory:
        journal = JournalWriter(Path(directory) / "1.journal")
        usual = UsualFigures(journal, 0, 600)
        starts = []
        for _ in range(100):
            begun = time.perf_counter()
            usual.start()
            starts.append(time.perf_counter() - begun)
            usual.close()
        print(f"the thread is started in {1e6 * statistics.median(starts):.0f} µs")
        thread = threading.Thread(target=measure, args=[usual, num_samples])
        thread.start()
        thread.join()
        journal.close()


def measure(usual: UsualFigures, num_samples: int) -> None:
    begun = time.thread_time()
    sources = list(usual.sources())
    for source in sources:
        source.start()
    print(f"the first sample loads what it needs in {1e3 * (time.thread_time() - begun):.1f} ms, once")
    begun, means = time.thread_time(), Means()
    for _ in range(num_samples):
        for source in sources:
            means.add(source.group, source.sample())
    each_s = (time.thread_time() - begun) / num_samples
    share = each_s / INTERVAL_S
    print(f"a sample of {len(sources)} sources takes {1e6 * each_s:.0f} µs: {share:.5%} of a core", end=" ")
    print(f"(target: {TARGET:.1%}{'' if share <= TARGET else ', MISSED'})")


if __name__ == "__main__":
    main()
