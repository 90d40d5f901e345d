"""Hangs trainings in every way, and counts how many are named, and how soon; then trains with odd rhythms.

python benchmarks/stalls.py [HANGS] [HEALTHY]

The bounds of the watch are shortened to 1 to 3 s, so that a hang must be named within 3 s and five more, and a loop of
several lines of Python within four times 3 s and five more.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from execution.agent.test_stalls import BOUNDS, HANGING, LOADING, ODD, RANKS
from processes import kill_tree

from core_sdk._ground.records import Report, StallFound
from core_sdk._home import Home
from core_sdk._home.journal import find_records

WAYS = {
    "lock": (HANGING, "train.py:12"),
    "C": (HANGING, "train.py:17"),
    "io": (HANGING, "train.py:19"),
    "stopped": (HANGING, "was stopped by a signal"),
    "endless": (HANGING, "train.py:23"),
    "uninterrupted": (HANGING, "train.py:26"),
    "save": (HANGING, "train.py:29"),
    "fork": (LOADING, "whose worker"),
    "lines": (HANGING, "s in train.py:3"),  # "loops in", or "stands in" if it was in one line each time
    "collective": (RANKS, "ranks 0 and 2 wait for it in allgather"),
}
RANKS_COMMAND = ["-m", "launch.torch_distributed", "--nproc-per-node", "3", "--", sys.executable]
MOST_S = 3.0


def main() -> None:
    num_hangs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    num_healthy = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    ways, named, latest = [*WAYS], 0, 0.0
    for number in range(num_hangs):
        way = ways[number % len(ways)]
        after_s = hang(way)
        named += after_s is not None and after_s <= (4 * MOST_S if way == "lines" else MOST_S) + 5
        latest = max(latest, after_s or 0.0)
        print(f"{number + 1}: {way}: {'NOT NAMED' if after_s is None else f'{after_s:.1f} s'}", flush=True)
    print(
        f"{named} of {num_hangs} hangs are named within their bound and 5 s; the latest after {latest:.1f} s",
        flush=True,
    )
    generator, alarms = random.Random(1), 0
    for number in range(num_healthy):
        alarms += is_alarmed(generator)
        print(f"{number + 1}: {alarms} alarms", flush=True)
    print(f"{alarms} alarms in {num_healthy} healthy trainings")


def hang(way: str) -> float | None:
    """Returns the time in seconds from the last report until the hang was named; None if it was not."""
    source, words = WAYS[way]
    with tempfile.TemporaryDirectory() as directory:
        process, home = begin(Path(directory), source, way, RANKS_COMMAND if way == "collective" else [])
        try:
            deadline, folder, told = time.monotonic() + 120, home.folder(1), ""
            while time.monotonic() < deadline:
                for found in find_records(folder.changes_path, ['"stall"']):
                    if isinstance(found, StallFound) and words in found.words:
                        reports = find_records(folder.journal_path(1), ['"report"'])
                        return found.time - max(each.time for each in reports if isinstance(each, Report))
                    told = found.words if isinstance(found, StallFound) else told
                time.sleep(0.1)
            print(f"what was said is: {told or 'nothing'}", flush=True)
            return None
        finally:
            kill_tree(process.pid)
            process.wait()


def is_alarmed(generator: random.Random) -> bool:
    """Trains once in an odd rhythm, and returns whether it was taken for one that stands."""
    source = ODD.replace("work(4)", f"work({generator.uniform(1, 6):.1f})")
    source = source.replace("work(5)", f"work({generator.uniform(2, 8):.1f})")
    source = source.replace("0.02 * step", f"{generator.uniform(0.001, 0.03):.3f} * step")
    with tempfile.TemporaryDirectory() as directory:
        process, home = begin(Path(directory), source, "", [])
        process.wait(120)
        return any(isinstance(each, StallFound) for each in find_records(home.folder(1).changes_path, ['"stall"']))


def begin(directory: Path, source: str, way: str, launch: list[str]) -> tuple[subprocess.Popen[bytes], Home]:
    home = Home(directory / "home")
    (directory / "train.py").write_text(source)
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, *launch, "train.py", way]
    environment = os.environ | BOUNDS | {"CORE_SDK_HOME": str(home.root)}
    dropped = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=directory, env=environment, stdout=dropped, stderr=dropped), home


if __name__ == "__main__":
    main()
