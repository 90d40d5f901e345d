"""Trainings without a Context: their metrics are read from the files that they write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from core_sdk._analysis.resume_check._command import CheckedCommand
from core_sdk._analysis.resume_check._comparing import Reports, merged
from core_sdk._analysis.resume_check._metric_files import MetricFiles
from core_sdk._analysis.resume_check._training import GRACE_S, AttemptFacts, CheckedTraining, End
from core_sdk._ground.records import Report
from core_sdk.core._preempt._disturbance import Disturbance

_LOOK_S = 0.02


class WatchedTraining(CheckedTraining):
    """A training that is watched from outside: it is disturbed as soon as a report is seen in its files."""

    def __init__(self, command: CheckedCommand, directory: Path) -> None:
        super().__init__(command, directory)
        self._metrics = MetricFiles(command.metrics_path(self._files))
        self._reported: Reports = {}

    def run_attempt(self, disturbance: Disturbance | None, timeout_s: float) -> AttemptFacts:
        reports: list[Report] = []
        first_report_s: float | None = None
        is_disturbed = False
        left: list[psutil.Process] = []
        began_at = time.monotonic()
        ends_at = began_at + timeout_s
        with self.log_path.open("ab") as log:
            process = psutil.Popen(
                self._next_command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            while process.poll() is None and time.monotonic() < ends_at:
                reports += self._metrics.take_new()
                if reports and first_report_s is None:
                    first_report_s = time.monotonic() - began_at
                if not is_disturbed and disturbance is not None and _is_due(disturbance, reports):
                    is_disturbed = True
                    left = _processes(process)
                    _signal(left, disturbance)
                    ends_at = min(ends_at, time.monotonic() + GRACE_S)
                time.sleep(_LOOK_S)
        status = process.poll()
        if is_disturbed and status is not None:
            psutil.wait_procs(left, GRACE_S)  # the others may still save
        _kill([*left, *_processes(process)])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        reports += self._metrics.take_new()
        self._reported = merged(self._reported, reports)
        end: End = "hung" if status is None else "stopped" if is_disturbed else "failed" if status else "ended"
        return AttemptFacts(end, status, tuple(reports), first_report_s=first_report_s)

    def reports(self) -> Reports:
        return self._reported


def _is_due(disturbance: Disturbance, reports: list[Report]) -> bool:
    return any(disturbance.is_due(each, number) for number, each in enumerate(reports, 1))


def _signal(processes: list[psutil.Process], disturbance: Disturbance) -> None:
    """Kills all processes, or asks all of them, or only the one that was started, to stop."""
    if disturbance.how == "kill":
        _kill(processes)
    for each in processes[:1] if disturbance.how == "stop" else processes:
        _send(each, signal.SIGTERM)


def _processes(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def _kill(processes: list[psutil.Process]) -> None:
    for each in processes:
        _send(each, signal.SIGKILL)
    psutil.wait_procs(processes, GRACE_S)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)
