"""What experiments cost beyond their scripts.

python benchmarks/experiments.py [--quick]

1. From `core-sdk experiment create`, which also starts the master, to the first line of the first trial, beside the
   bare script's own start.
2. 64 trials of a script that does nothing, on 2 slots, beside the same scripts by `xargs -P2`.
3. From a validation report to the event by which the searcher hears of it.
4. The processor and the memory of a master in a home with 1,000 experiments that have ended.
5. How much of a search is trained: 64 trials of up to 256 units, 4 rungs, divisor 4, with real processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from core_sdk._execution.experiments.calling import await_end_of_master, call
from core_sdk._execution.experiments.events import read_new_events
from core_sdk._execution.experiments.protocol import Down, GetStatus
from core_sdk._execution.experiments.submission import submit
from core_sdk._ground.records import ValidationRead
from core_sdk._home import Home, open_view

CONFIG = """
entrypoint: [{python}, train.py]
searcher: {{name: random, metric: loss, max_trials: {num_trials}, max_concurrent_trials: 2}}
"""
ASHA = """
entrypoint: [{python}, train.py]
hyperparameters: {{x: {{type: double, minval: 0, maxval: 1}}}}
searcher:
  name: async_halving
  metric: loss
  time_metric: units
  max_time: 256
  max_trials: 64
  max_concurrent_trials: 16
  num_rungs: 4
  divisor: 4
reproducibility: {{experiment_seed: 1}}
"""
TRAINING = """
import time
from core_sdk import core
with core.init() as context:
    x = context.info.trial.hparams["x"]
    for unit in range(1, 257):
        time.sleep({unit_s})
        context.train.report_validation_metrics(steps_completed=unit, metrics={{"loss": x + 1 / unit, "units": unit}})
        if context.preempt.should_preempt() or unit == 256:
            with context.checkpoint.store_path({{"steps_completed": unit}}) as (path, _):
                (path / "unit").write_text(str(unit))
            break
"""
FIRST_LINE = 'import time\nprint(f"first {time.time()}", flush=True)\n'
SCRIPTS = {"does nothing": "", "calls init()": "from core_sdk import core\nwith core.init(): pass"}
REPORTING = """
import time
from core_sdk import core
with core.init() as context:
    for step in range(1, 31):
        context.train.report_validation_metrics(steps_completed=step, metrics={"loss": 1 / step, "time": time.time()})
        time.sleep(0.1)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    is_quick = parser.parse_args().quick
    first_line(3 if is_quick else 9)
    scripts(1 if is_quick else 3)
    reaction()
    idle(100 if is_quick else 1000)
    units(0.1 if is_quick else 0.25)


@contextmanager
def scratch(source: str, num_trials: int = 1) -> Iterator[tuple[Home, Path]]:
    """Yields a home, and a directory with train.py and config.yaml."""
    with tempfile.TemporaryDirectory() as directory:
        code = Path(directory) / "code"
        code.mkdir()
        (code / "train.py").write_text(source)
        (Path(directory) / "config.yaml").write_text(CONFIG.format(python=sys.executable, num_trials=num_trials))
        home = Home.create(Path(directory) / "home")
        try:
            yield home, code
        finally:
            call(home.root, Down())
            await_end_of_master(home.root)


def first_line(num_rounds: int) -> None:
    bare, ours = [], []
    for _ in range(num_rounds):
        with scratch(FIRST_LINE) as (home, code):
            begin = time.time()
            output = subprocess.run([sys.executable, code / "train.py"], capture_output=True, text=True, check=True)
            bare.append(float(output.stdout.split()[1]) - begin)
            begin = time.time()
            create = [
                sys.executable,
                "-m",
                "core_sdk._interfaces.cli",
                "experiment",
                "create",
                f"{code.parent}/config.yaml",
                str(code),
            ]
            subprocess.run(create, env={**os.environ, "CORE_SDK_HOME": str(home.root)}, check=True, capture_output=True)
            log = home.root / "runs" / "1" / "1.log"
            until(partial(has_line, log))
            ours.append(float(log.read_text().split()[1]) - begin)
    more = statistics.median(ours) - statistics.median(bare)
    print(
        f"first line: {statistics.median(bare):.2f} s bare, {more:.2f} s more from `create` (target 0.7 s)", flush=True
    )


def scripts(num_rounds: int, num_trials: int = 64) -> None:
    for what, source in {
        "does nothing": "",
        "calls init()": "from core_sdk import core\nwith core.init(): pass",
    }.items():
        bare, ours = [], []
        for _ in range(num_rounds):
            with scratch(source, num_trials) as (home, code):
                os.environ["CORE_SDK_HOME"] = str(home.root / "bare")
                begin = time.monotonic()
                script = f"seq {num_trials} | xargs -P2 -I{{}} {sys.executable} {code / 'train.py'}"
                subprocess.run(["sh", "-c", script], check=True, capture_output=True)
                bare.append(time.monotonic() - begin)
                call(home.root, GetStatus(), options=["--slots=2"])
                begin = time.monotonic()
                text = (code.parent / "config.yaml").read_text()
                experiment_id = submit(home, text, source="config.yaml", model_dir=code).experiment_id
                until(partial(has_ended, home, experiment_id))
                ours.append(time.monotonic() - begin)
        ratio = statistics.median(ours) / statistics.median(bare)
        print(
            f"{num_trials} trials of a script that {what}: {statistics.median(bare):.2f} s bare, "
            f"{statistics.median(ours):.2f} s as trials: {ratio:.2f} times (target 1.3)",
            flush=True,
        )


def reaction() -> None:
    with scratch(REPORTING) as (home, code):
        text = (code.parent / "config.yaml").read_text()
        experiment_id = submit(home, text, source="config.yaml", model_dir=code).experiment_id
        until(lambda: has_ended(home, experiment_id))
        path = home.experiment(experiment_id).events_path
        events = [event for events, _ in read_new_events(path, 0) for event in events]
        heard = [event.time for event in events if isinstance(event, ValidationRead)]
        with open_view(home) as view:
            reported = [report.metrics["time"] for report in view.reports(1, "validation")]
        delays = sorted(after - before for before, after in zip(reported, heard, strict=True))
        median = statistics.median(delays)
        print(f"report to searcher: median {median:.3f} s, largest {delays[-1]:.3f} s (target 0.5)", flush=True)


def idle(num_experiments: int, watched_s: float = 20.0) -> None:
    with scratch("") as (home, code):
        text = (code.parent / "config.yaml").read_text()
        call(home.root, GetStatus(), options=["--stay"])
        for _ in range(num_experiments):
            submit(home, text, source="config.yaml", model_dir=code)
        until(lambda: call(home.root, GetStatus()).experiments == (), timeout_s=1800)
        call(home.root, Down())
        await_end_of_master(home.root)
        begin = time.monotonic()
        status = call(home.root, GetStatus(), options=["--stay"])
        started_s = time.monotonic() - begin
        master = psutil.Process(status.pid)
        before = master.cpu_times()
        time.sleep(watched_s)
        after = master.cpu_times()
        share = (after.user + after.system - before.user - before.system) / watched_s
        print(
            f"a master with {num_experiments} experiments that have ended: {share:.2%} of a core (target 0.5 %), "
            f"{master.memory_info().rss >> 20} MB (target 150), started in {started_s:.2f} s",
            flush=True,
        )


def units(unit_s: float) -> None:
    rungs = (4, 16, 64, 256)
    with scratch(TRAINING.format(unit_s=unit_s)) as (home, code):
        call(home.root, GetStatus(), options=["--slots=16"])
        text = ASHA.format(python=sys.executable)
        experiment_id = submit(home, text, source="asha.yaml", model_dir=code).experiment_id
        until(partial(has_ended, home, experiment_id), timeout_s=1800)
        with open_view(home) as view:
            trials = view.trials(experiment_id)
            spent = sum(trial.steps_completed for trial in trials)
            saved = sum(trial.latest_checkpoint is not None for trial in trials)
            beyond = max(
                min(trial.steps_completed - rung for rung in rungs if rung <= trial.steps_completed) for trial in trials
            )
        print(
            f"64 trials of up to 256 units of {unit_s} s: {spent} of 16384 units ({spent / 16384:.1%}; target 20 %), "
            f"{saved} of {len(trials)} with a checkpoint, at most {beyond} units beyond a rung",
            flush=True,
        )


def has_line(log: Path) -> bool:
    return log.exists() and log.read_text().startswith("first")


def has_ended(home: Home, experiment_id: int) -> bool:
    record = json.loads((home.experiment(experiment_id).path / "experiment.json").read_bytes())
    return bool(record.get("search") and record["search"].get("ended"))


def until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
