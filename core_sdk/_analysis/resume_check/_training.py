"""Runs a training in a home of its own, attempt by attempt."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from core_sdk._analysis.resume_check._comparing import Reports
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.environment.names import DISTURBANCE_VARIABLE, FINGERPRINTS_VARIABLE, HOME_VARIABLE
from core_sdk._ground.records import AttemptStarted, CheckpointStored, Record, Report, StopAcknowledged
from core_sdk._home import Home, open_view
from core_sdk._home.journal import read_records
from core_sdk.core._preempt._disturbance import Disturbance
from core_sdk.core._recorders import Fingerprint

_TRIAL = 1
_END_S = 60.0
_CLI = (sys.executable, "-m", "core_sdk._interfaces.cli")
PAUSED = 75
"""The exit status of a training that has stopped and can be resumed."""


@dataclass(frozen=True)
class AttemptFacts:
    """The facts of one attempt that are compared. Times are in seconds."""

    status: int | None
    """The exit status; None if its time was over."""
    resumed_steps: int
    reports: tuple[Report, ...]
    num_saves: int
    is_stopped: bool
    """Whether the script knew that it should stop."""
    save_s: float | None
    """From the stop to the end of the save that follows; None without a stop or a save."""
    first_report_s: float | None
    """From `init()` to the first report."""
    fingerprints: tuple[Fingerprint, ...] = ()
    """The state before each step of an optimizer."""


class CheckedTraining:
    """A training of the command, in a new home in `directory`."""

    def __init__(self, command: Sequence[str], directory: Path, *, seed: int) -> None:
        self._command = list(command)
        self._directory = directory
        self._seed = seed
        self._num_attempts = 0
        self.home = Home(directory / "home")

    @property
    def log_path(self) -> Path:
        """The output of all attempts."""
        return self._directory / "output.log"

    def run_attempt(self, disturbance: Disturbance | None, timeout_s: float) -> AttemptFacts:
        """Runs the first attempt, or resumes the trial. After `timeout_s` it is asked to stop, and killed later."""
        if self._num_attempts == 0:
            arguments = ["run", "--seed", str(self._seed), "--", *self._command]
        else:
            arguments = ["trial", "resume", str(_TRIAL)]
        variables = {HOME_VARIABLE: str(self.home.root)}
        self._num_attempts += 1
        self._directory.mkdir(exist_ok=True)
        fingerprints = self._directory / f"fingerprints-{self._num_attempts}.jsonl"
        variables[FINGERPRINTS_VARIABLE] = str(fingerprints)
        if disturbance is not None:
            variables[DISTURBANCE_VARIABLE] = msgspec.json.encode(disturbance).decode()
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                [*_CLI, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | variables
            )
            status = self._await(process, variables, timeout_s)
        return self._facts(status, fingerprints)

    def reports(self) -> Reports:
        """Returns all numbers that the trial has reported and no later attempt has superseded."""
        with open_view(self.home) as view:
            return {
                (row.steps_completed, row.group, name): value
                for row in view.reports(_TRIAL, rank=0)
                if row.steps_completed is not None
                for name, value in row.metrics.items()
                if isinstance(value, int | float)
            }

    def last_lines(self, num_lines: int = 10) -> list[str]:
        with contextlib.suppress(OSError):
            return self.log_path.read_text(errors="replace").splitlines()[-num_lines:]
        return []

    def _await(self, process: subprocess.Popen[bytes], variables: dict[str, str], timeout_s: float) -> int | None:
        for action in ("pause", "kill"):
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                # Between two attempts there is nothing that could be asked, and the process ends by itself.
                subprocess.run([*_CLI, "trial", action, str(_TRIAL)], env=os.environ | variables, capture_output=True)
                timeout_s = _END_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        process.kill()
        process.wait()
        return None

    def _facts(self, status: int | None, fingerprints: Path) -> AttemptFacts:
        folder = self.home.folder(_TRIAL)
        journals = [folder.journal_path(each) for each in folder.attempts()] if folder.exists() else []
        # A script that never calls init() leaves none.
        records = list[Record](read_records(journals[-1])) if journals and journals[-1].exists() else []
        start = next((each for each in records if isinstance(each, AttemptStarted)), None)
        reports = tuple(each for each in records if isinstance(each, Report))
        stop = next((each for each in records if isinstance(each, StopAcknowledged)), None)
        saves = [each for each in records if isinstance(each, CheckpointStored)]
        last = saves[-1] if saves and stop is not None and saves[-1].time >= stop.time else None
        return AttemptFacts(
            status=status,
            resumed_steps=0 if start is None else start.resumed_steps,
            reports=reports,
            num_saves=len(saves),
            is_stopped=stop is not None,
            save_s=None if last is None or stop is None else last.time - stop.time,
            first_report_s=reports[0].time - start.time if reports and start is not None else None,
            fingerprints=_read_fingerprints(fingerprints),
        )


def _read_fingerprints(path: Path) -> tuple[Fingerprint, ...]:
    # The last line of a training that was killed may be cut.
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return tuple(map(json_decoder(Fingerprint), lines))
