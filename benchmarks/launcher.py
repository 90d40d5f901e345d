"""What the launcher costs and how soon it ends: its start-up against bare torchrun, and the time from a rank's death.

python benchmarks/launcher.py [--num-runs 7]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

NUM_RANKS = 2
OURS = [sys.executable, "-m", "launch.torch_distributed", f"--nproc-per-node={NUM_RANKS}", "--"]
BARE = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}"]

DIES = """
import os, sys, time
if os.environ["RANK"] == "1":
    with open(sys.argv[1], "w") as file:
        file.write(str(time.time()))
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-runs", type=int, default=7)
    num_runs = parser.parse_args().num_runs
    with tempfile.TemporaryDirectory() as scratch:
        compare_start_up(Path(scratch), num_runs)
        compare_ends(Path(scratch), num_runs)


def compare_start_up(scratch: Path, num_runs: int) -> None:
    script = scratch / "nothing.py"
    script.write_text("pass\n")
    bares, ours = [], []
    for _ in range(num_runs):
        bares.append(duration_s([*BARE, str(script)]))
        ours.append(duration_s([*OURS, sys.executable, str(script)]))
    print(f"a script that does nothing, on {NUM_RANKS} ranks, from command to exit")
    print(f"  torchrun                 {statistics.median(bares):6.2f} s")
    print(f"  launch.torch_distributed {statistics.median(ours):6.2f} s")
    print(f"  difference               {statistics.median(ours) - statistics.median(bares):+6.2f} s   (target <= 0.5)")


def compare_ends(scratch: Path, num_runs: int) -> None:
    script, died_at = scratch / "dies.py", scratch / "died_at"
    script.write_text(DIES)
    bares, ours = [], []
    for _ in range(num_runs):
        bares.append(end_s([*BARE, str(script), str(died_at)], died_at))
        ours.append(end_s([*OURS, sys.executable, str(script), str(died_at)], died_at))
    print("from the kill -9 of one rank, while the other sleeps, to the launcher's exit")
    print(f"  torchrun                 {statistics.median(bares):6.2f} s")
    print(f"  launch.torch_distributed {statistics.median(ours):6.2f} s")


def duration_s(command: Sequence[str]) -> float:
    begin = time.monotonic()
    run(command)
    return time.monotonic() - begin


def end_s(command: Sequence[str], died_at: Path) -> float:
    run(command)
    return time.time() - float(died_at.read_text())


def run(command: Sequence[str]) -> None:
    # What torchrun says about threads and failures is not what is measured.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, check=False)


if __name__ == "__main__":
    main()
