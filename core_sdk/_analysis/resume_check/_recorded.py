"""Trainings that report to a Context, each in a home of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from core_sdk._analysis.resume_check._command import CheckedCommand
from core_sdk._analysis.resume_check._comparing import Reports, merged
from core_sdk._analysis.resume_check._training import GRACE_S, AttemptFacts, CheckedTraining, End
from core_sdk._ground.environment.names import DISTURBANCE_VARIABLE, FINGERPRINTS_VARIABLE, HOME_VARIABLE
from core_sdk._ground.records import AttemptStarted, CheckpointStored, Record, Report, StopAcknowledged
from core_sdk._home import Home, open_view
from core_sdk._home.journal import read_records
from core_sdk._home.storage import storage_from_url
from core_sdk._home.storages import storage_url
from core_sdk.core._preempt._disturbance import Disturbance
from core_sdk.core._recorders._fingerprints import read_fingerprints
from core_sdk.errors import CoreSDKError

_TRIAL = 1
_PAUSED = 75
"""The exit status of a training that has stopped and can be resumed."""
_CLI = (sys.executable, "-m", "core_sdk._interfaces.cli")


class RecordedTraining(CheckedTraining):
    """A training that reports to a Context, or by anything that does."""

    def __init__(self, command: CheckedCommand, directory: Path, *, seed: int) -> None:
        super().__init__(command, directory)
        self._seed = seed
        self._reported: Reports = {}
        """The reports of all attempts, the last one last."""
        self._saves: list[CheckpointStored] = []
        """The checkpoints of all attempts."""
        self.home = Home(directory / "home")

    def run_attempt(self, disturbance: Disturbance | None, timeout_s: float) -> AttemptFacts:
        argv = self._next_command()
        if self._num_attempts == 1:
            arguments = ["run", "--seed", str(self._seed), "--", *argv]
        else:
            arguments = ["trial", "resume", str(_TRIAL)]
            arguments += ["--", *argv] if argv != self._command.argv(1, self._files) else []
        fingerprints = self._directory / f"fingerprints-{self._num_attempts}.jsonl"
        variables = {HOME_VARIABLE: str(self.home.root), FINGERPRINTS_VARIABLE: str(fingerprints)}
        if disturbance is not None:
            variables[DISTURBANCE_VARIABLE] = msgspec.json.encode(disturbance).decode()
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                [*_CLI, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | variables
            )
            status = self._await(process, variables, timeout_s)
        facts = self._facts(_end(status, disturbance), status, fingerprints)
        self._reported = merged(self._reported, facts.reports)
        return facts

    def reports(self) -> Reports:
        if self._command.has_own_checkpoints:
            return self._reported  # the home takes an attempt without a checkpoint of its own for a new beginning
        with open_view(self.home) as view:
            return {
                (row.steps_completed, row.group, f"{name} of rank {row.rank}" if row.rank else name): value
                for row in view.reports(_TRIAL, rank="all")
                if row.steps_completed is not None and isinstance(row.rank, int)
                for name, value in row.metrics.items()
                if isinstance(value, int | float)
            }

    def last_tensors(self, step: int | None = None) -> tuple[int, dict[str, str]]:
        saves = [each for each in self._saves if step in (None, each.steps_completed)]
        if not saves or importlib.util.find_spec("torch") is None:
            return 0, {}
        from core_sdk._analysis.tensors import digests  # imports torch

        last = saves[-1]
        try:
            with contextlib.closing(storage_from_url(storage_url(self.home, last.storage, last.storage_id))) as storage:
                found = digests(storage, last.storage_id)
        except CoreSDKError:  # the training's policy has deleted it
            found = {}
        return last.steps_completed, found

    def _await(self, process: subprocess.Popen[bytes], variables: dict[str, str], timeout_s: float) -> int | None:
        for action in ("pause", "kill"):
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                # Between two attempts there is nothing that could be asked, and the process ends by itself.
                subprocess.run([*_CLI, "trial", action, str(_TRIAL)], env=os.environ | variables, capture_output=True)
                timeout_s = GRACE_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        process.kill()
        process.wait()
        return None

    def _facts(self, end: End, status: int | None, fingerprints: Path) -> AttemptFacts:
        folder = self.home.folder(_TRIAL)
        journals = [folder.journal_path(each) for each in folder.attempts()] if folder.exists() else []
        # A script that never calls init() leaves none.
        records = list[Record](read_records(journals[-1])) if journals and journals[-1].exists() else []
        start = next((each for each in records if isinstance(each, AttemptStarted)), None)
        reports = tuple(each for each in records if isinstance(each, Report))
        stop = next((each for each in records if isinstance(each, StopAcknowledged)), None)
        saves = [each for each in records if isinstance(each, CheckpointStored)]
        self._saves += saves
        last = saves[-1] if saves and stop is not None and saves[-1].time >= stop.time else None
        is_known = start is not None and not self._command.has_own_checkpoints
        return AttemptFacts(
            end=end,
            status=status,
            resumed_steps=start.resumed_steps if start is not None and is_known else None,
            reports=reports,
            num_saves=len(saves),
            save_s=None if last is None or stop is None else last.time - stop.time,
            first_report_s=reports[0].time - start.time if reports and start is not None else None,
            fingerprints=read_fingerprints(fingerprints),
        )


def _end(status: int | None, disturbance: Disturbance | None) -> End:
    match status:
        case None:
            return "hung"
        case 0:
            return "ended"
        case _ if status == _PAUSED:
            return "stopped"
    is_signalled = disturbance is not None and disturbance.how != "stop"
    return "stopped" if is_signalled else "failed"
