"""The main job from beginning to end: train, pause in the middle, resume, and look at what is recorded.

Every line that starts with "$" is a command to try yourself.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""
NUM_EPOCHS = 24
PAUSE_AFTER_EPOCH = 4


def main() -> None:
    shutil.rmtree(HOME, ignore_errors=True)

    say("A small network learns 1,797 handwritten digits, on two processes. We ask it to stop in the middle.")
    launcher = ("python", "-m", "launch.torch_distributed", "--nproc-per-node=2", "--")
    script = ("python", "examples/5_distributed.py", f"--epochs={NUM_EPOCHS}")
    show("core-sdk", "run", "--", *launcher, *script, on_line=pause_midway)

    say("Both stopped in the same epoch, after a checkpoint. The same trial goes on from there.")
    show("core-sdk", "trial", "resume", "1", on_line=check_accuracy)

    say("What was recorded, over both attempts:")
    show("core-sdk", "trial", "list")
    show("core-sdk", "trial", "metrics", "1", "--group", "validation")
    show("core-sdk", "trial", "metrics", "1", "--plot")
    show("core-sdk", "checkpoint", "list", "--trial", "1")

    say(f"All of it lies in {HOME.relative_to(ROOT)}/, as plain files. To look around:")
    print(f"  export CORE_SDK_HOME={shlex.quote(str(HOME))}")
    print("  .venv/bin/core-sdk trial describe 1")
    print("  .venv/bin/core-sdk trial logs 1 --rank 1")
    print("  .venv/bin/core-sdk trial metrics 1 --json")
    print("  .venv/bin/core-sdk --help")


def pause_midway(line: str) -> None:
    if line.startswith(f"[rank=0] epoch {PAUSE_AFTER_EPOCH},"):
        show("core-sdk", "trial", "pause", "1")


def check_accuracy(line: str) -> None:
    match = re.match(r"\[rank=\d+\] accuracy (.+) on the test images \(expected: (.+) or more\)", line)
    if match and float(match[1]) < float(match[2]):
        sys.exit("demo: the network learned less than it should")


def show(*command: str, on_line: Callable[[str], None] = lambda line: None) -> None:
    """Runs a command as a reader would type it, its output passed on line by line."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    binaries = Path(sys.executable).parent
    environment = os.environ | {"CORE_SDK_HOME": str(HOME), "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            on_line(line)
    if process.returncode not in (0, PAUSED):
        sys.exit(f"demo: {shlex.join(command)} exited with status {process.returncode}")


def say(text: str) -> None:
    print(f"\n# {text}", flush=True)


if __name__ == "__main__":
    main()
