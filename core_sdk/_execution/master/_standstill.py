"""An experiment that stands still because one of its files is damaged or cannot be read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_sdk._execution.experiments.protocol import ExperimentStatus, RunningTrial
from core_sdk._execution.master.pools import Claim
from core_sdk._ground.config import Resources
from core_sdk._home.attempts.killing import killable_attempt
from core_sdk._home.folders import Home, TrialFolder
from core_sdk.errors import RecordDamagedError


@dataclass(frozen=True)
class HeldSlots:
    """An attempt of the experiment that still runs on slots of this machine."""

    folder: TrialFolder
    attempt: int
    slot_ids: tuple[int, ...]


@dataclass(frozen=True)
class Standstill:
    """The facts about the experiment that are known without its events."""

    problem: str
    files: Mapping[Path, object]
    """The states of its files when the problem was found."""
    claims: Sequence[Claim]
    """Attempts that were about to begin, and are being taken back."""
    held: Sequence[HeldSlots]
    is_transient: bool
    """Whether the disk could not read the files. Such an error may pass at any time without a change of a file."""

    @property
    def may_go_on(self) -> bool:
        """Whether the experiment can be tried again."""
        is_changed = self.is_transient or self.files != file_states(self.files)
        return is_changed and all(claim.is_over for claim in self.claims)

    def held_slots(self) -> set[int]:
        """Returns the slots of this machine that are not free yet."""
        of_claims = (claim.slot_ids for claim in self.claims if not claim.is_over)
        return {slot for ids in (*of_claims, *(held.slot_ids for held in self.running())) for slot in ids}

    def running(self) -> list[HeldSlots]:
        """Returns the attempts that still run."""
        return [held for held in self.held if held.folder.is_running(held.attempt)]

    def status(self, experiment_id: int) -> ExperimentStatus:
        running = tuple(RunningTrial(held.folder.trial_id, held.slot_ids) for held in self.running())
        return ExperimentStatus(experiment_id, "DAMAGED", Resources().priority, None, self.problem, running=running)


def file_states(paths: Iterable[Path]) -> dict[Path, object]:
    """Returns the state of each file, which differs after the file was written or replaced."""
    return {path: _state(path) for path in paths}


def _state(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_mtime_ns, status.st_size


def find_held(home: Home, experiment_id: int) -> list[HeldSlots]:
    """Returns the attempts of the experiment that run on this machine, according to the trials' own files."""
    held = []
    for trial_id in home.trial_ids():
        folder = home.folder(trial_id)
        with contextlib.suppress(RecordDamagedError, PermissionError):  # its slots are not known then
            attempt = killable_attempt(folder)
            info = None if attempt is None else folder.read_run_info(attempt)
            if (
                attempt is not None
                and info is not None
                and info.trial.experiment_id == experiment_id
                and _is_here(info.trial.config)
            ):
                held.append(HeldSlots(folder, attempt, tuple(info.named_slot_ids)))
    return held


def _is_here(config: Mapping[str, Any]) -> bool:
    engine: object = (config.get("resources") or {}).get("engine", "local")
    return engine == "local"
