"""Reports 1 ms apart, then `kill -9`: what is lost, and what a report takes, here and with other trackers.

    python benchmarks/lost.py [--reports 3000] [--runs 3] [--environments DIRECTORY]

A process makes the reports and kills itself 1 ms after the last one. Counted are reports that had returned and are not
in the tracker's records afterwards. Each of trackio, wandb (offline), mlflow (SQLite) and tensorboardX is measured if
DIRECTORY has an environment of its name, made by `python -m venv DIRECTORY/trackio` and
`DIRECTORY/trackio/bin/pip install trackio`. Exits with 1 if we have lost a report.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from _lost_peer import TRACKERS

from core_sdk._analysis.exchange.kinds import find_runs
from core_sdk._ground.records import Report
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk.errors import CoreSDKError

SETTLED_S = 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--environments", type=Path, default=Path("peers"))
    arguments = parser.parse_args()
    num_lost_here = 0
    for name in TRACKERS:
        python = Path(sys.executable) if name == "ours" else arguments.environments / name / "bin" / "python"
        if not python.exists():
            print(f"{name:<14} not installed in {arguments.environments}")
            continue
        lost, medians = [], []
        for _ in range(arguments.runs):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
                durations = killed(python, name, Path(scratch), arguments.reports)
                lost.append(len(set(range(len(durations))) - set(kept_steps(name, Path(scratch)))))
                medians.append(statistics.median(durations) / 1e3)
        counts = f"{min(lost)} to {max(lost)}" if max(lost) > min(lost) else f"{lost[0]}"
        print(f"{name:<14} {counts} of {arguments.reports:,} lost, {statistics.median(medians):7.1f} µs a report")
        num_lost_here += sum(lost) if name == "ours" else 0
    return 1 if num_lost_here else 0


def killed(python: Path, name: str, directory: Path, num_reports: int) -> list[int]:
    """Returns the nanoseconds of each report that has returned, once all that the tracker has started is at rest."""
    peer = str(Path(__file__).with_name("_lost_peer.py"))
    argv = [str(python), peer, name, str(directory), str(num_reports)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        content, errors = process.communicate()
    if process.returncode != -9:
        raise SystemExit(f"{name}: {errors.decode(errors='replace')}")
    _wait_for_session(process.pid)
    return [int.from_bytes(content[place : place + 8], "big") for place in range(0, len(content), 8)]


def _wait_for_session(leader: int) -> None:
    """Waits for processes such as wandb's service, which may write on after the death of the training."""
    until = time.monotonic() + SETTLED_S
    while time.monotonic() < until:
        with contextlib.suppress(psutil.Error):
            if not any(_is_in_session(each, leader) for each in psutil.process_iter()):
                return
        time.sleep(0.1)


def _is_in_session(process: psutil.Process, leader: int) -> bool:
    try:
        return os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def kept_steps(name: str, directory: Path) -> Iterator[int]:
    if name == "ours":
        records = read_records(Home(directory).trial(1).journal_path(1))
        yield from (record.steps_completed for record in records if isinstance(record, Report))
        return
    with contextlib.suppress(CoreSDKError):  # nothing is there
        for run in find_runs(directory):
            yield from (step for _, step, values in run.rows if any(given.endswith("loss") for given in values))


if __name__ == "__main__":
    sys.exit(main())
