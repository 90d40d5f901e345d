"""What the launchers cost and how soon they end: start-up against the bare programs, and the time from a rank's death.

Also the time of the processors for ranks that only meet by torch, beside the same ranks without a launcher.

DeepSpeed and Horovod are measured where `make test-integrations` has installed them.

python benchmarks/launcher.py [--num-runs 7]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NUM_RANKS = 2
_PR_SET_CHILD_SUBREAPER = 36
START_UP_TARGET = 0.9
"""The start-up as a part of torchrun's own, with the same torch, in the same run."""
PROCESSOR_TARGET = 1.1
"""The processors' time of a launch as a part of its ranks' own, whose rank 0 keeps torch's store."""
TOLD_TARGET_S = 0.2
"""The time from the death of a rank to the launcher's exit."""
OURS = [sys.executable, "-m", "launch.torch_distributed", f"--nproc-per-node={NUM_RANKS}", "--"]
BARE = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}"]

STARTS = """
import os, sys, time
with open(os.path.join(sys.argv[1], str(os.getpid())), "w") as file:
    file.write(str(time.time()))
"""

MEETS = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""

DIES = """
import os, sys, time
if os.environ["RANK"] == "1":
    with open(sys.argv[1], "w") as file:
        file.write(str(time.time()))
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@dataclass(frozen=True)
class Pair:
    """The same ranks by a bare program and by our launcher; both are followed by a script and its arguments."""

    names: tuple[str, str]
    bare: Sequence[str | Path]
    ours: Sequence[str | Path]
    directory: Path
    """The directory of the environment."""
    target: float | None = None
    """The highest start-up, as a part of the bare program's."""

    @property
    def is_installed(self) -> bool:
        return (self.directory / ".installed").exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-runs", type=int, default=7)
    num_runs = parser.parse_args().num_runs
    is_late = False
    with tempfile.TemporaryDirectory() as scratch:
        for pair in pairs(Path(scratch)):
            if pair.is_installed:
                ratio = compare_start_up(Path(scratch), pair, num_runs)
                is_late |= pair.target is not None and ratio > pair.target
            else:
                print(f"NOT MEASURED: {pair.names[1]}; {pair.directory} is not installed")
        is_late |= compare_processor_time(Path(scratch), num_runs) > PROCESSOR_TARGET
        is_late |= compare_ends(Path(scratch), num_runs) > TOLD_TARGET_S
    sys.exit(is_late)


def pairs(scratch: Path) -> list[Pair]:
    environment = Path(sys.prefix)
    deepspeed, horovod = environment / "deepspeed", environment / "horovod"
    return [
        Pair(("torchrun", "launch.torch_distributed"), BARE, [*OURS, sys.executable], environment, START_UP_TARGET),
        Pair(
            ("torchrun --tee", "ours --tee"),
            [*BARE, "--tee=3", f"--log-dir={scratch}"],
            [*OURS[:-1], "--tee=3", f"--log-dir={scratch}", "--"],
            environment,
            START_UP_TARGET,
        ),
        Pair(
            ("deepspeed", "launch.deepspeed"),
            [deepspeed / "bin" / "deepspeed", f"--num_gpus={NUM_RANKS}", "--no_local_rank"],
            [deepspeed / "bin" / "python", "-m", "launch.deepspeed", f"--num_gpus={NUM_RANKS}", "--", "python"],
            deepspeed,
        ),
        Pair(
            ("horovodrun", "launch.horovod"),
            [horovod / "bin" / "horovodrun", "-np", str(NUM_RANKS), "-H", f"localhost:{NUM_RANKS}", "python"],
            [horovod / "bin" / "python", "-m", "launch.horovod", "-np", str(NUM_RANKS), "--", "python"],
            horovod,
        ),
    ]


def compare_start_up(scratch: Path, pair: Pair, num_runs: int) -> float:
    """Returns our start-up as a part of the bare program's."""
    script = scratch / "starts.py"
    script.write_text(STARTS)
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for _ in range(num_runs):
        for measured, command in zip(times, (pair.bare, pair.ours), strict=True):
            measured.append(start_and_end_s([*command, script], pair.directory))
    bare, ours = ([statistics.median(column) for column in zip(*measured, strict=True)] for measured in times)
    print(f"{NUM_RANKS} ranks: from the command to the first line of the last rank's script, and to the exit")
    for name, (start_s, end_s) in zip(pair.names, (bare, ours), strict=True):
        print(f"  {name:<24} {start_s:6.2f} s {end_s:6.2f} s")
    start_up, end = (float(our_s / bare_s) for our_s, bare_s in zip(ours, bare, strict=True))
    target = "" if pair.target is None else f"   (target for the start-up <= {pair.target})"
    print(f"  {'ratio':<24} {start_up:6.2f}   {end:6.2f}{target}")
    return start_up


def start_and_end_s(command: Sequence[str | Path], environment: Path) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as starts:
        begin = time.time()
        run([*map(str, command), starts], PATH=f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}")
        end = time.time()
        started = [float(path.read_text()) for path in Path(starts).iterdir()]
    if len(started) != NUM_RANKS:
        raise RuntimeError(f"{' '.join(map(str, command))} started {len(started)} ranks")
    return max(started) - begin, end - begin


def compare_processor_time(scratch: Path, num_runs: int) -> float:
    """Returns the processors' time of a launch as a part of its ranks' own. They take turns; the least of each counts.

    What a launch leaves to be ended, such as its guardian, becomes a child of this process, and is counted.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    script = str(scratch / "meets.py")
    Path(script).write_text(MEETS)
    bares_s, ours_s = [], []
    for _ in range(num_runs):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(NUM_RANKS)}
        ranks = [([sys.executable, script], {"RANK": str(rank), **place}) for rank in range(NUM_RANKS)]
        bares_s.append(processor_s(ranks))
        ours_s.append(processor_s([([*OURS, sys.executable, script], {})]))
    bare_s, our_s = min(bares_s), min(ours_s)
    print(f"the processors' time for {NUM_RANKS} ranks that import torch, meet and end")
    print(f"  without a launcher       {bare_s:6.2f} s")
    print(f"  launch.torch_distributed {our_s:6.2f} s   {our_s / bare_s:.2f} times   (target <= {PROCESSOR_TARGET})")
    return our_s / bare_s


def processor_s(commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> float:
    """Returns the processors' time of processes that run at once, and of all that they have started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command, variables in commands:
        subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **variables})
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare_ends(scratch: Path, num_runs: int) -> float:
    """Returns the time from the death of a rank to our launcher's exit."""
    script, died_at = scratch / "dies.py", scratch / "died_at"
    script.write_text(DIES)
    bares, ours = [], []
    for _ in range(num_runs):
        bares.append(end_s([*BARE, str(script), str(died_at)], died_at))
        ours.append(end_s([*OURS, sys.executable, str(script), str(died_at)], died_at))
    print("from the kill -9 of one rank, while the other sleeps, to the launcher's exit")
    print(f"  torchrun                 {statistics.median(bares):6.2f} s")
    print(f"  launch.torch_distributed {statistics.median(ours):6.2f} s   (target <= {TOLD_TARGET_S})")
    return statistics.median(ours)


def end_s(command: Sequence[str], died_at: Path) -> float:
    run(command)
    return time.time() - float(died_at.read_text())


def run(command: Sequence[str], **variables: str) -> None:
    # What torchrun says about threads and failures, and DeepSpeed about processors, is not what is measured.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"} | variables
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, check=False)


if __name__ == "__main__":
    main()
