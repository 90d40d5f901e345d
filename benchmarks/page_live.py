"""How long after a report its value is on the screen, in the table of runs of an open page.

    python benchmarks/page_live.py [--repeats 30] [--beside 20]

`--beside` more trials report ten times a second meanwhile. It needs Debian's chromium and playwright.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from page import milliseconds, opened, show

from core_sdk._home import Home

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from browser.conftest import serving

# A report for each line; it says when, by the clock that is JavaScript's, too.
_TOLD = """
import sys, time
from core_sdk import core
with core.init(name="watched") as context:
    for line in sys.stdin:
        context.train.report_training_metrics(int(line), {"seen": int(line)})
        print(time.time() * 1000, flush=True)
"""

_BESIDE = """
import time
from core_sdk import core
with core.init(name="beside") as context:
    step = 0
    while not context.preempt.should_preempt():
        step += 1
        context.train.report_training_metrics(step, {"loss": 1 / step})
        time.sleep(0.1)
"""

# Resolves two frames after the text is in the table: then it is painted.
_PAINTED = """
(text) => new Promise((resolve) => {
  const look = () => {
    const cells = [...document.querySelectorAll(".grid-row [role=gridcell]")];
    if (!cells.some((cell) => cell.textContent.replaceAll(/[^0-9]/g, "") === text)) return requestAnimationFrame(look);
    requestAnimationFrame(() => resolve(Date.now()));
  };
  look();
})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--beside", type=int, default=20, help="trials that report meanwhile")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Home.create(Path(directory, "home"))
        with contextlib.ExitStack() as trainings:
            for _ in range(arguments.beside):
                trainings.enter_context(training(home, _BESIDE))
            watched = trainings.enter_context(training(home, _TOLD))
            report(watched, 1)
            with serving(home) as site, opened(site.entrance) as page:
                page.evaluate("location.hash = '#/runs?columns=id,training.seen&sort=-training.seen'")
                page.evaluate(_PAINTED, "1")
                delays = []
                for step in range(7001, 7001 + arguments.repeats):
                    reported_at_ms = report(watched, step)
                    delays.append(page.evaluate(_PAINTED, str(step)) - reported_at_ms)
    show(f"a report, beside {arguments.beside} trials, on the screen", milliseconds(delays), "at most 1,000 ms")


@contextlib.contextmanager
def training(home: Home, source: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", source],
        env=os.environ | {"CORE_SDK_HOME": str(home.root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def report(training: subprocess.Popen[str], step: int) -> float:
    """Has a step reported. Returns when, in ms since 1970."""
    if training.stdin is None or training.stdout is None:
        raise ValueError("a training is told its steps by pipes")
    print(step, file=training.stdin, flush=True)
    return float(training.stdout.readline())


if __name__ == "__main__":
    main()
