"""A submitted experiment: its configuration, its code, and the record that lists show."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from core_sdk._execution.experiments.code import has_startup_hook, unpack_for_trial, with_startup_hook
from core_sdk._execution.experiments.experiment import ExperimentStateMachine
from core_sdk._ground.config import ExperimentConfig, entrypoint_argv, from_mapping
from core_sdk._ground.records import CommandRecord, SearchRecord, SubmissionRecord, from_json
from core_sdk._home.attempts.command import resolve
from core_sdk._home.folders import Home, TrialFolder
from core_sdk.errors import RecordDamagedError


class SubmittedExperiment:
    """A submitted experiment. What was submitted does not change."""

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
        """The completed configuration as JSON values, as scripts get it."""
        return self.folder.read_config()

    @cached_property
    def config(self) -> ExperimentConfig:
        """The completed configuration. Raises `RecordDamagedError`."""
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
        """Returns the files of the home that `prepare` reads."""
        folder = self.folder
        files = [folder.record_path, folder.submission_path, folder.completed_config_path]
        return files if self.record.code is None else [*files, self.home.code_archive(self.record.code)]

    def check(self) -> None:
        """Reads the configuration and the record. Raises `RecordDamagedError` if they are damaged."""
        self.config  # noqa: B018
        self.record  # noqa: B018

    def publish(self, experiment: ExperimentStateMachine) -> None:
        """Writes the state of the experiment into its record, which lists show."""
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
                beginnings=experiment.beginnings,
                home=self.home.owner(),
            )

    def publish_damage(self, problem: str) -> None:
        """Writes into the record why the experiment stands still, if a master has begun it."""
        with self.folder.edit() as record:
            if record.search is not None:
                record.search = replace(record.search, reason=problem, is_damaged=True)

    def is_from_elsewhere(self) -> bool:
        """Returns whether its last master ran in the home of which this one is a copy, or at another place."""
        search = self.folder.read().search
        return search is not None and self.home.ownership().is_elsewhere(search.home)

    def has_to_go_on(self) -> bool:
        """Returns whether a master of this home has begun it, and it has not ended.

        Raises `RecordDamagedError` for a bad record.
        """
        record = self.folder.read()
        if record.is_received:
            return False
        return self.folder.events_path.exists() if record.search is None else not record.search.has_ended
