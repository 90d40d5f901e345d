"""Measures lists and the page with one trial of very many names, values, lines or labels among 2,000 ordinary ones.

    python benchmarks/width.py --trials 2000 --wide 50000

Each home is measured beside one without such a trial. The index is built before.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.environment import agent_variables
from core_sdk._ground.records import FORMAT, AttemptStarted, Ended, Report, TrialRecord
from core_sdk._home import Home
from core_sdk._home.journal import encode_line
from core_sdk._interfaces.server.routes.logs import LogsQuery, logs
from core_sdk._interfaces.server.routes.runs import ColumnsQuery, RunsQuery, columns, runs
from core_sdk._interfaces.server.routes.trials import TrialQuery, trial
from core_sdk._interfaces.server.shared_view import SharedView

_EPOCH = 1_750_000_000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--wide", type=int, default=50_000)
    arguments = parser.parse_args()
    for what in ("nothing", "metrics", "hyperparameters", "values", "lines", "labels"):
        with tempfile.TemporaryDirectory() as directory:
            home = Home.create(Path(directory))
            for number in range(arguments.trials - 1):
                write_trial(home, hparams={"lr": number / 100, "batch_size": 32})
            write_wide_trial(home, what, arguments.wide)
            print(f"{arguments.trials:,} trials, {what} of one: {arguments.wide:,}")
            measure(home, arguments.trials)


def write_wide_trial(home: Home, what: str, num: int) -> None:
    match what:
        case "metrics":
            write_trial(home, metrics={f"norm/layer{number:06d}": 1.0 for number in range(num)})
        case "hyperparameters":
            write_trial(home, hparams={f"option{number:06d}": number for number in range(num)})
        case "values":
            write_trial(home, hparams={"lr": 1.0, "data": list(range(num)), "text": "x" * num})
        case "lines":
            write_trial(home, lines=num)
        case "labels":
            write_trial(home, labels=[f"label {number}" for number in range(num)])
        case _:
            write_trial(home)


def write_trial(
    home: Home,
    *,
    metrics: Mapping[str, float] | None = None,
    hparams: Mapping[str, Any] | None = None,
    lines: int = 0,
    labels: list[str] | None = None,
) -> None:
    folder = home.create_trial()
    folder.write_record(
        TrialRecord(
            trial_id=folder.trial_id,
            experiment_id=home.find_or_create_experiment("width").experiment_id,
            created=_EPOCH,
            seed=0,
            hparams=dict(hparams or {"lr": 1.0}),
            labels=labels or [],
        )
    )
    started = AttemptStarted(
        time=_EPOCH, format=FORMAT, trial_id=folder.trial_id, attempt=1, host="", pid=1, sdk_version=""
    )
    report = Report(_EPOCH, "validation", 1, dict(metrics or {"loss": 0.5, "accuracy": 0.5}))
    ended = Ended(time=_EPOCH, outcome="completed")
    folder.journal_path(1).write_bytes(encode_line(started) + encode_line(report) + encode_line(ended))
    if lines:
        folder.log_path(1).write_text("".join(f"step {number}\n" for number in range(lines)))


def measure(home: Home, last: int) -> None:
    command = [sys.executable, "-m", "core_sdk._interfaces.cli"]
    variables = agent_variables() | {"CORE_SDK_HOME": str(home.root)}
    subprocess.run([*command, "trial", "list", "-q"], env=variables, check=True, capture_output=True)
    for arguments, target in (
        (["trial", "list"], "at most 2 s"),
        (["trial", "list", "-q"], ""),
        (["compare", "1", "2", str(last)], "at most 2 s"),
        (["compare", "--group-by", "batch_size"], ""),
        (["trial", "describe", str(last)], ""),
    ):
        begin = time.perf_counter()
        answered = subprocess.run([*command, *arguments], env=variables, capture_output=True)
        elapsed_s = time.perf_counter() - begin
        failed = "" if answered.returncode == 0 else f", exit status {answered.returncode}"
        show(" ".join(arguments), elapsed_s, len(answered.stdout), target + failed)
    with SharedView(home, can_act=False) as shared:
        shared.wait()
        questions: dict[str, Callable[[], object]] = {
            "/columns": lambda: columns(shared, ColumnsQuery()),
            "/runs": lambda: runs(shared, RunsQuery()),
            "/trials/ID": lambda: trial(shared, last, TrialQuery()),
            "/trials/ID/logs": lambda: logs(shared, last, LogsQuery()),
        }
        for path, ask in questions.items():
            begin = time.perf_counter()
            answer = msgspec.json.encode(ask())
            show(path, time.perf_counter() - begin, len(answer), "")


def show(what: str, elapsed_s: float, size_bytes: int, target: str) -> None:
    print(f"  {what:<34} {elapsed_s * 1000:>8,.0f} ms {size_bytes / 1000:>10,.0f} kB  {target}", flush=True)


if __name__ == "__main__":
    main()
