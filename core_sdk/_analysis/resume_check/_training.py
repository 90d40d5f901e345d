"""A training that is checked, attempt by attempt."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core_sdk._analysis.resume_check._command import CheckedCommand
from core_sdk._analysis.resume_check._comparing import Reports
from core_sdk._ground.records import Report
from core_sdk.core._preempt._disturbance import Disturbance
from core_sdk.core._recorders._fingerprints import Fingerprint

End = Literal["ended", "stopped", "failed", "hung"]
"""The ways in which an attempt ends: by itself, by the disturbance, with an error, or killed when its time was over."""
GRACE_S = 60.0
"""The time in seconds that an attempt may take to stop."""


@dataclass(frozen=True)
class AttemptFacts:
    """The facts of one attempt that are compared. Times are in seconds."""

    end: End
    status: int | None
    """The exit status; None if it had to be killed."""
    reports: tuple[Report, ...]
    resumed_steps: int | None = None
    """The step of the checkpoint from which it has gone on; None if nobody but the script knows it."""
    num_saves: int = 0
    save_s: float | None = None
    """From the stop to the end of the save that follows; None without a stop or a save."""
    first_report_s: float | None = None
    """The seconds from `init()`, or from the start of the process, to the first report."""
    fingerprints: tuple[Fingerprint, ...] = ()
    """The state before each step of an optimizer."""


class CheckedTraining(ABC):
    """A training of the command in a new directory."""

    def __init__(self, command: CheckedCommand, directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._num_attempts = 0
        self._files.mkdir(parents=True)

    @property
    def _files(self) -> Path:
        """The directory that the command calls `{dir}`."""
        return self._directory / "files"

    @property
    def log_path(self) -> Path:
        """The output of all attempts."""
        return self._directory / "output.log"

    @abstractmethod
    def run_attempt(self, disturbance: Disturbance | None, timeout_s: float) -> AttemptFacts:
        """Runs the first attempt, or goes on. After `timeout_s` it is asked to stop, and killed later."""

    @abstractmethod
    def reports(self) -> Reports:
        """Returns all numbers of the training that no later attempt has replaced."""

    def last_tensors(self, step: int | None = None) -> tuple[int, dict[str, str]]:
        """Returns digests of the tensors of the newest checkpoint, or of the newest one of this step, and its step.

        There are none without a checkpoint that Core SDK can read.
        """
        return 0, {}

    def last_lines(self, num_lines: int = 10) -> list[str]:
        with contextlib.suppress(OSError):
            return self.log_path.read_text(errors="replace").splitlines()[-num_lines:]
        return []

    def _next_command(self) -> list[str]:
        self._num_attempts += 1
        return self._command.argv(self._num_attempts, self._files)
