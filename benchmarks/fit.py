"""What `Trainer.fit` costs per batch, beside the same loop by hand, and beside other trainers that are installed.

`Linear(1, 1)`, batches of 4, one thread, a report every 100 batches. The budget is 15 µs a batch over the loop by hand.

python benchmarks/fit.py [--turns 15] [--libraries PYTHON] [--determined PYTHON] [--clock process_time]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

BUDGET_US = 15.0
CONTENDER = Path(__file__).with_name("_fit_contender.py")
# `make test-integrations` makes this environment, with Lightning and Accelerate.
LIBRARIES = Path(sys.executable).parent.parent / "callbacks" / "bin" / "python"


class Way(NamedTuple):
    """A way to train, in a process of its own."""

    name: str
    python: Path
    baseline: str
    """The name of the loop by hand in the same environment."""


class Contender:
    """A process that trains when it is asked to."""

    def __init__(self, way: Way, folder: Path, clock: str) -> None:
        name = "by_hand" if way.name == way.baseline else way.name
        home, empty = folder / "home", folder / "empty"
        for each in (home, empty):
            each.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [str(way.python), str(CONTENDER), name, clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # Determined copies the working directory into each checkpoint.
            cwd=empty,
            env=os.environ | {"CORE_SDK_HOME": str(home), "HOME": str(home), "OMP_NUM_THREADS": "1"},
        )

    def microseconds_per_batch(self) -> float | None:
        """None if it cannot train here."""
        if self._process.stdin is None or self._process.stdout is None or self._process.poll() is not None:
            return None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        return float(answer) if answer else None

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def ways(libraries: Path, determined: Path | None) -> list[Way]:
    own = Path(sys.executable)
    chosen = [Way("by hand", own, "by hand"), Way("core_sdk", own, "by hand")]
    if libraries.exists():
        chosen += [Way(name, libraries, "by hand") for name in ("lightning", "fabric", "accelerate")]
    if determined is not None:
        chosen += [Way(name, determined, "by hand, there") for name in ("by hand, there", "determined")]
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--libraries", type=Path, default=LIBRARIES, help="a Python that has Lightning and Accelerate")
    parser.add_argument("--determined", type=Path, help="a Python that has determined and torch")
    parser.add_argument(
        "--clock",
        choices=("perf_counter", "process_time"),
        default="perf_counter",
        help="process_time counts what the processes themselves compute, on a machine that is busy",
    )
    options = parser.parse_args()
    chosen = ways(options.libraries, options.determined)
    figures: dict[str, list[float]] = {way.name: [] for way in chosen}
    with ExitStack() as running, tempfile.TemporaryDirectory() as folder:
        contenders = [running.enter_context(Contender(way, Path(folder), options.clock)) for way in chosen]
        # In turns, so that a busy minute of the machine falls on all of them. The first turn is for warming up.
        for turn in range(options.turns + 1):
            for way, contender in zip(chosen, contenders, strict=True):
                figure = contender.microseconds_per_batch()
                if turn and figure is not None:
                    figures[way.name].append(figure)
    for way in chosen:
        show(way, figures[way.name], figures[way.baseline])
    cost = statistics.median(
        ours - by_hand for ours, by_hand in zip(figures["core_sdk"], figures["by hand"], strict=True)
    )
    print(f"Trainer.fit costs {cost:.1f} µs a batch over the loop by hand   (target {BUDGET_US:g})")
    print("met" if cost <= BUDGET_US else "MISSED")
    sys.exit(0 if cost <= BUDGET_US else 1)


def show(way: Way, figures: list[float], baseline: list[float]) -> None:
    if not figures:
        print(f"{way.name:16} does not run in {way.python}")
        return
    median, by_hand = statistics.median(figures), statistics.median(baseline)
    spread = f"{min(figures):.1f} to {max(figures):.1f}"
    print(f"{way.name:16} {median:7.1f} µs a batch ({spread}), {median - by_hand:+8.1f}, {median / by_hand:5.2f} times")


if __name__ == "__main__":
    main()
