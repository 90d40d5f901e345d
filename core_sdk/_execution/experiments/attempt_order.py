"""The order to start a trial's next attempt, on this machine or on a node of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._home.attempts.killing import kill
from core_sdk._home.attempts.running import await_end, never_began, take_back
from core_sdk._home.attempts.starting import AttemptStart, begin_in_experiment, resume
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.next_attempt import left_attempt
from core_sdk._machine.slots import Slots

_LAST_MOMENT_S = 10.0


@dataclass(frozen=True)
class AttemptOrder:
    """The order to start an attempt: plain values, which can be sent to another host."""

    name: str
    """The name of the attempt. Another attempt of the home gets the same name only if this one never began."""
    home_root: Path
    experiment_id: int
    home_identity: str
    """The home's identity, which distinguishes it from another home at the same path."""
    trial_id: int
    is_first: bool
    num_slots: int
    """The slots of all nodes together."""
    request_id: str
    hparams: Mapping[str, Any]
    seed: int
    warm_start: str | None
    num_nodes: int = 1
    """The nodes over which the slots are divided evenly."""
    asked: float | None = None
    """The time since which the trial waits for this attempt, in seconds since the Unix epoch."""

    def claim(self, slots: Slots) -> AttemptStart:
        """Claims the attempt for this process, like `make_start`, when an earlier claim may exist.

        A claim that a killed master has made, but not recorded, is taken back. Its lock may take a moment to go.
        """
        folder = self.folder
        await_end(folder, _LAST_MOMENT_S)
        attempts = folder.attempts()
        if attempts and never_began(folder, attempts[-1]):
            take_back(folder, attempts[-1])
        return self.make_start(self.submission(), slots)

    @property
    def folder(self) -> TrialFolder:
        return Home(self.home_root).folder(self.trial_id)

    def submission(self) -> SubmittedExperiment:
        """Returns the submitted experiment of the trial. Raises `ExperimentNotFoundError`."""
        return SubmittedExperiment(Home(self.home_root), self.experiment_id)

    def make_start(self, submission: SubmittedExperiment, slots: Slots) -> AttemptStart:
        """Claims the attempt for this process. May block for as long as a storage takes to answer."""
        folder, slots = self.folder, replace(slots, asked=self.asked)
        if not self.is_first:
            if (left := left_attempt(folder)) is not None:
                kill(folder, left)
            submission.prepare(folder)
            return resume(folder, is_again=True, config=submission.config_values, slots=slots)
        return begin_in_experiment(
            folder,
            self.experiment_id,
            request_id=self.request_id,
            hparams=self.hparams,
            seed=self.seed,
            config=submission.config_values,
            command=submission.prepare,
            slots=slots,
            warm_start=self.warm_start or submission.record.warm_start,
        )
