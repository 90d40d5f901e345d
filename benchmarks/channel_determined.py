"""What a collective of the ranks of one node costs, against `determined`'s in the same run, in turns.

python benchmarks/channel_determined.py [--determined PYTHON] [--ranks 2,4,8] [--load 8] [--quick]

PYTHON, also as BENCH_DETERMINED_PYTHON, belongs to an environment with determined==0.38.1 (`pip install determined`),
which needs packages that ours does not. A figure is the time per call on the slowest rank, and the processor's time
per call on the chief with all its threads; each the median over turns that alternate between the two. A ratio is ours
by theirs; the last column compares the shortest turns, which other processes have disturbed least.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from _channel_rank import ROUND_TRIP

_VARIABLE = "BENCH_DETERMINED_PYTHON"
_SIZES = {"64 B": (64, 200), "1 MiB": (1 << 20, 10)}
_CALLS = ("allgather", "broadcast", "gather", ROUND_TRIP)


class Figures(NamedTuple):
    slowest_us: float
    chief_cpu_us: float


class Group:
    """Ranks of one library, which wait for their turn."""

    def __init__(self, ranks: Sequence[subprocess.Popen[str]]) -> None:
        self._ranks = ranks
        self._answers()

    def play(self, call: str, num_bytes: int, num_calls: int) -> Figures:
        for rank in self._ranks:
            print(
                json.dumps({"call": call, "num_bytes": num_bytes, "num_calls": num_calls}), file=rank.stdin, flush=True
            )
        answers = self._answers()
        return Figures(max(wall_us for wall_us, _ in answers), answers[0][1])

    def _answers(self) -> list[list[float]]:
        lines = [rank.stdout.readline() for rank in self._ranks if rank.stdout is not None]
        if not all(lines):
            raise SystemExit("a rank has ended")
        return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--determined", default=os.environ.get(_VARIABLE), metavar="PYTHON")
    parser.add_argument("--ranks", default="2,4,8", help="sizes of the group")
    parser.add_argument("--calls", default=",".join(_CALLS), help="which calls, by default all")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="beside so many processes that compute")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    arguments = parser.parse_args()
    if arguments.determined is None:
        print(f"determined is absent: say where it is by --determined PYTHON or {_VARIABLE}; ours alone follows")
    else:
        print(versions(arguments.determined))
    print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, beside {arguments.load} processes that compute"
    )
    print(f"{'':>36}  {'slowest rank':^31}  {'processor, on the chief':^31}")
    headings = 2 * f"  {'ours':>9}  {'determined':>10}  ratio  " + "shortest"
    print(f"{'ranks':>5}  {'call':<20}  {'payload':<7}" + headings, flush=True)
    calls = arguments.calls.split(",")
    with load(arguments.load):
        for size in map(int, arguments.ranks.split(",")):
            compare(size, calls, arguments.determined, num_turns=5 if arguments.quick else 21)


def versions(python: str) -> str:
    """Returns the versions of the packages on which the figures depend."""
    command = "import sys, determined, zmq; print(determined.__version__, zmq.__version__, sys.version.split()[0])"
    result = subprocess.run([python, "-c", command], check=True, capture_output=True, text=True)
    return "determined {}, pyzmq {}, its Python {}".format(*result.stdout.split())


@contextmanager
def load(num_processes: int) -> Iterator[None]:
    """Keeps the processor busy with this many processes until this one ends."""
    command = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"]
    processes = [subprocess.Popen(command) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def compare(size: int, calls: Sequence[str], determined: str | None, num_turns: int) -> None:
    with ExitStack() as stack:
        groups = [stack.enter_context(group("core_sdk", sys.executable, size))]
        if determined is not None:
            groups.append(stack.enter_context(group("determined", determined, size)))
        for payload, (num_bytes, num_calls) in _SIZES.items():
            for call in calls:
                # In turns, so that a noisy neighbour disturbs both alike.
                turns = [[each.play(call, num_bytes, num_calls) for each in groups] for _ in range(num_turns)]
                print(f"{size:>5}  {call:<20}  {payload:<7}{columns(list(zip(*turns, strict=True)))}", flush=True)


@contextmanager
def group(library: str, python: str, size: int) -> Iterator[Group]:
    port = free_ports()
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        python,
                        str(Path(__file__).with_name("_channel_rank.py")),
                        library,
                        str(rank),
                        str(size),
                        str(port),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"CORE_SDK_HOME": home},
                )
            )
            for rank in range(size)
        ]
        yield Group(ranks)


def free_ports() -> int:
    """Returns the first of two free ports."""
    while True:
        with socket.create_server(("", 0)) as first:
            port = int(first.getsockname()[1])
            try:
                socket.create_server(("", port + 1)).close()
            except OSError:
                continue
            return port


def median(figures: Sequence[Figures]) -> Figures:
    return Figures(*(statistics.median(each) for each in zip(*figures, strict=True)))


def columns(figures: Sequence[Sequence[Figures]]) -> str:
    """Returns one row: the figures of each contender's turns."""
    medians = [median(turns) for turns in figures]
    shortest = [min(turn.slowest_us for turn in turns) for turns in figures]
    compared_shortest = "".join(f"{shortest[0] / other:5.2f}" for other in shortest[1:])
    return "".join(f"  {compared(each)}" for each in zip(*medians, strict=True)) + compared_shortest


def compared(figures: Sequence[float]) -> str:
    ours, *theirs = figures
    return f"{ours:6,.0f} µs" + "".join(f"  {other:7,.0f} µs  {ours / other:5.2f}  " for other in theirs)


if __name__ == "__main__":
    main()
