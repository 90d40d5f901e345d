"""Trainings in one screen: one is killed, loses nothing, goes on, and is compared with another; then 16 are searched.

Every line that starts with "$" is a command to try yourself.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
EXAMPLE = "examples/5_distributed.py"
NUM_EPOCHS = 10
KILL_AFTER_EPOCH = 4
LEAST_ACCURACY = 0.95
SEARCH = "digits-search"
TRAIN = ("core-sdk", "run", "--", "python", "-m", "launch.torch_distributed", "--nproc-per-node=2", "--")
OTHER_RANKS = re.compile(r"\[rank=[1-9]")
EVERYTHING = re.compile("")
BEFORE_THE_END = re.compile(r"trial \d+ (begins|at)")


def main() -> None:
    shutil.rmtree(HOME, ignore_errors=True)

    say("Two processes train a network on 1,797 handwritten digits, until one of them is killed.")
    show(*TRAIN, "python", EXAMPLE, f"--epochs={NUM_EPOCHS}", on_line=kill_midway, expected=None)

    say("Nothing is lost: what was reported before the kill is recorded.")
    show("core-sdk", "trial", "metrics", "1", "--group", "validation")
    check_that_nothing_is_lost()

    say("The same trial goes on from its newest checkpoint.")
    show("core-sdk", "trial", "resume", "1", on_line=check_accuracy)

    say("Its curve runs over both attempts.")
    show("core-sdk", "trial", "plot", "1", "--metric", "accuracy")

    say("A second trial learns more slowly.")
    show(*TRAIN, "python", EXAMPLE, f"--epochs={NUM_EPOCHS}", "--learning-rate=0.0003", hidden=EVERYTHING)
    show("core-sdk", "compare", "1", "2")

    say("A search trains 16 smaller networks, two or more at a time. It stops those that fall behind.")
    show("core-sdk", "experiment", "create", "examples/4_search.yaml", "examples", "--local", hidden=BEFORE_THE_END)
    show("core-sdk", "experiment", "best", SEARCH, on_line=check_best)
    show("core-sdk", "experiment", "plot", SEARCH)

    say(f"All of it lies in {HOME.relative_to(ROOT)}/, as plain files. To look around:")
    print(f"  export CORE_SDK_HOME={shlex.quote(str(HOME))}")
    print("  .venv/bin/core-sdk trial describe 1")
    print("  .venv/bin/core-sdk trial logs 1 --rank 1")
    print(f"  .venv/bin/core-sdk experiment trials {SEARCH}")
    print("  .venv/bin/core-sdk --help")


def kill_midway(line: str) -> None:
    if line.startswith(f"[rank=0] epoch {KILL_AFTER_EPOCH},"):
        chief = next(process for process in training_processes() if process.environ().get("RANK") == "0")
        print(f"\n$ kill -9 {chief.pid}", flush=True)
        chief.send_signal(signal.SIGKILL)


def training_processes() -> list[psutil.Process]:
    """The ranks of this demo."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if EXAMPLE in (process.info["cmdline"] or []):
            try:
                variables = process.environ()
            except psutil.Error:  # it has ended, or is somebody else's
                continue
            if variables.get("CORE_SDK_HOME") == str(HOME) and "RANK" in variables:
                found.append(process)
    return found


def check_that_nothing_is_lost() -> None:
    command = [program("core-sdk"), "trial", "metrics", "1", "--group", "validation", "--json"]
    reports = json.loads(subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True).stdout)
    if len(reports) < KILL_AFTER_EPOCH:
        sys.exit(f"demo: {KILL_AFTER_EPOCH} epochs were reported, and {len(reports)} are recorded")


def check_accuracy(line: str) -> None:
    match = re.match(r"\[rank=0\] accuracy (\S+) on the test images", line)
    if match and float(match[1]) < LEAST_ACCURACY:
        sys.exit("demo: the network learned less than it should")


def check_best(line: str) -> None:
    match = re.match(r" *accuracy +(\S+)", line)
    if match and float(match[1]) < LEAST_ACCURACY:
        sys.exit("demo: the search found less than it should")


def show(
    *command: str,
    on_line: Callable[[str], None] = lambda line: None,
    expected: int | None = 0,
    hidden: re.Pattern[str] = OTHER_RANKS,
) -> None:
    """Runs a command as a reader would type it, and passes on the lines of its output that do not begin as `hidden`."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    with subprocess.Popen(
        [program(command[0]), *command[1:]], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            if not hidden.match(line):
                print(line, end="", flush=True)
            on_line(line)
    if expected is not None and process.returncode != expected:
        sys.exit(f"demo: {shlex.join(command)} exited with status {process.returncode}")


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def environment() -> dict[str, str]:
    """With our programs first, and the demo's own home."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"CORE_SDK_HOME": str(HOME), "PATH": path}


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)


if __name__ == "__main__":
    main()
