"""How long imports and `core-sdk --help` take: medians over fresh processes, against bare Python or `import torch`.

python benchmarks/start_up.py [--processes 40]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

IMPORT_TARGET_MS = 60
CORE_TARGET_MS = 80
HELP_TARGET_MS = 100

BARE = [sys.executable, "-c", "pass"]
IMPORT = [sys.executable, "-c", "import core_sdk"]
IMPORT_CORE = [sys.executable, "-c", "import core_sdk.core"]
IMPORT_TORCH = [sys.executable, "-c", "import torch"]
IMPORT_PYTORCH = [sys.executable, "-c", "import torch, core_sdk.pytorch"]
HELP = [sys.executable, "-m", "core_sdk._interfaces.cli", "--help"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=40, help="of each kind")
    num_processes = parser.parse_args().processes
    commands = [BARE, IMPORT, IMPORT_CORE, HELP, IMPORT_TORCH, IMPORT_PYTORCH]
    bare, package, core, shown_help, torch, pytorch = medians_ms(commands, num_processes)
    print(f"bare Python                    {bare:6.1f} ms")
    print(f"import core_sdk, beyond it     {package - bare:6.1f} ms   (target {IMPORT_TARGET_MS})")
    print(f"import core_sdk.core, likewise {core - bare:6.1f} ms   (target {CORE_TARGET_MS})")
    print(f"core-sdk --help                {shown_help:6.1f} ms   (target {HELP_TARGET_MS})")
    print(f"import core_sdk.pytorch, beyond torch {pytorch - torch:6.1f} ms   (target {IMPORT_TARGET_MS})")
    is_met = max(package - bare, pytorch - torch) <= IMPORT_TARGET_MS and shown_help <= HELP_TARGET_MS
    is_met &= core - bare <= CORE_TARGET_MS
    print("met" if is_met else "MISSED")
    sys.exit(0 if is_met else 1)


def medians_ms(commands: Sequence[Sequence[str]], num_processes: int) -> list[float]:
    """Returns the median time of each command. They take turns, so that a busy minute falls on all of them."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(num_processes + 1):
        for command, durations in zip(commands, times, strict=True):
            durations.append(_duration_ms(command))
    # The first round filled the page cache and wrote the byte code.
    return [statistics.median(durations[1:]) for durations in times]


def _duration_ms(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    main()
