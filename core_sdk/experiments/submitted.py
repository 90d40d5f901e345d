"""An experiment that was submitted, as the master needs it: its configuration, its code, and the record for lists."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from core_sdk.config import ExperimentConfig, entrypoint_argv, from_mapping
from core_sdk.errors import RecordDamagedError
from core_sdk.experiments.code import has_startup_hook, unpack_for_trial, with_startup_hook
from core_sdk.experiments.experiment import Experiment
from core_sdk.records import CommandRecord, SearchRecord, SubmissionRecord, from_json
from core_sdk.tracking.attempts.command import resolve
from core_sdk.tracking.home import Home, TrialFolder


def goes_on_in_place(searcher: str) -> bool:
    """Whether an experiment of this searcher can be continued after its end; any other has decided its trials."""
    return searcher in ("single", "random", "grid")


class SubmittedExperiment:
    """What was submitted, which does not change."""

    def __init__(self, home: Home, experiment_id: int) -> None:
        """Raises `ExperimentNotFoundError`."""
        self.home = home
        self.experiment_id = experiment_id
        self.folder = home.experiment(experiment_id)

    @cached_property
    def record(self) -> SubmissionRecord:
        return self.folder.read_submission()

    @cached_property
    def config_values(self) -> dict[str, Any]:
        """The completed configuration as JSON values, as scripts are told it."""
        return self.folder.read_config()

    @cached_property
    def config(self) -> ExperimentConfig:
        """Raises `RecordDamagedError`."""
        try:
            return from_mapping(from_json(self.config_values)).config
        except ValueError as error:
            raise RecordDamagedError(self.folder.completed_config_path, str(error)) from error

    def prepare(self, trial: TrialFolder) -> CommandRecord:
        """Unpacks the code for a trial, and returns the command that starts it there. Raises `CommandError`."""
        argv = entrypoint_argv(self.config.entrypoint, self.config.resources.slots_per_trial)
        cwd = Path(self.record.cwd)
        if self.record.code is not None:
            cwd = unpack_for_trial(self.home, self.record.code, trial)
            if has_startup_hook(cwd):
                argv = with_startup_hook(argv)
        variables = self.record.environment
        return CommandRecord(argv=resolve(argv, cwd, variables.get("PATH")), cwd=str(cwd), environment=variables)

    def files(self) -> list[Path]:
        """What `prepare` reads, of all that the home has."""
        folder = self.folder
        files = [folder.record_path, folder.submission_path, folder.completed_config_path]
        return files if self.record.code is None else [*files, self.home.code_archive(self.record.code)]

    def check(self) -> None:
        """Reads all that it is made of. Raises `RecordDamagedError`."""
        self.config  # noqa: B018
        self.record  # noqa: B018

    def publish(self, experiment: Experiment) -> None:
        """Writes how the experiment stands into its record, for lists."""
        with self.folder.edit() as record:
            before = record.search
            ended = None if not experiment.is_ended else (before and before.ended) or time.time()
            record.search = SearchRecord(
                searcher=str(self.config.searcher.__struct_config__.tag),
                state=experiment.state,
                reason=experiment.reason,
                progress=round(experiment.progress, 3),
                num_trials=len(experiment.trials),
                num_running=experiment.num_running,
                ended=ended,
                warnings=list(experiment.warnings),
                num_events=experiment.num_events,
            )

    def publish_damage(self, problem: str) -> None:
        """Writes into its record, if it has been begun, why it stands still."""
        with self.folder.edit() as record:
            if record.search is not None:
                record.search = replace(record.search, reason=problem, is_damaged=True)

    def has_to_go_on(self) -> bool:
        """Whether a master has begun it, and it has not ended. Raises `RecordDamagedError` if that cannot be told."""
        search = self.folder.read().search
        return self.folder.events_path.exists() if search is None else not search.has_ended
