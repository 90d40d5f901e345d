"""Experiments: what is known of them, and their verbs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_sdk._execution.steering import experiments
from core_sdk._execution.steering.checks import checked_text
from core_sdk._home import open_view
from core_sdk._home.finding.time_ledger import TimeLedger, read_ledger
from core_sdk._home.rows import ExperimentRow
from core_sdk.client._experiment_config import experiment_config
from core_sdk.client._metrics import to_datetime
from core_sdk.client._notebook import Shown
from core_sdk.client._orders.checkpoints import Scope
from core_sdk.client._orders.order import TrainingState
from core_sdk.client._trials_frame import trials_frame
from core_sdk.client._unavailable import unavailable
from core_sdk.errors import ExperimentError

if TYPE_CHECKING:
    from core_sdk._analysis.charts.picture import Picture

_BY = "client"


class SteeredExperiment(Shown[ExperimentRow]):
    """An experiment as it was when it was looked up, and its verbs."""

    def __repr__(self) -> str:
        return f"Experiment(id={self.id}, name={self.name!r}, state={self.state.name})"

    def _facts(self) -> Mapping[str, object]:
        progress = self.progress
        return {
            "Experiment": f"{self.name} ({self.id})",
            "State": self.state.name,
            "Trials": self.num_trials,
            "Progress": None if progress is None else f"{progress:.0%}",
            "Labels": ", ".join(sorted(self.labels)) or None,
            "Description": self.description or None,
        }

    def _read(self) -> ExperimentRow:
        with open_view(self._home) as view:
            return view.experiment(self.id)

    def _take(self, row: ExperimentRow) -> None:
        self.id = self._id = row.experiment_id
        self._scope = Scope(row.experiment_id)
        self.name = row.name
        self.start_time = to_datetime(row.created)
        self.labels: Set[str] = frozenset(row.labels)
        self.description = row.description
        self.num_trials = row.num_trials
        self.state = TrainingState[row.state]
        self.archived = row.is_archived
        self.forked_from = row.parent
        self._search = row.search

    @property
    def progress(self) -> float | None:
        """The progress of the search, from 0 to 1, or else the mean of the trials' progress; None if unknown."""
        if self._search is not None:
            return self._search.progress
        with open_view(self._home) as view:
            told = [row.progress for row in view.trials(self.id) if row.progress is not None]
        return sum(told) / len(told) if told else None

    def time_ledger(self) -> TimeLedger:
        """Returns where the time of its trials went, added up over all of them."""
        with open_view(self._home) as view:
            return read_ledger(view, experiment_id=self.id)

    @property
    def notes(self) -> str:
        return self._home.experiment(self.id).read().notes

    @property
    def config(self) -> dict[str, Any]:
        """The complete configuration of an experiment that was submitted, including keys and secrets.

        For an experiment that was not submitted, its records in the same form. "hyperparameters" and "data" are those
        of its first trial, each hyperparameter as a constant. "searcher" has the "metric", if one is known.
        "checkpoint_storage" says how many checkpoints are kept.
        """
        return experiment_config(self._home, self.id)

    def trials_frame(self) -> dict[str, list[Any]]:
        """Returns the trials as columns, with one row per trial: `pandas.DataFrame(experiment.trials_frame())`.

        The columns are trial_id, experiment_id, state, num_attempts, steps_completed, start_time and end_time; then one
        per hyperparameter ("hparams.lr", "hparams.model.layers"); then the best value of the searcher's metric
        ("best.validation.loss"); then the last value of each metric ("last.training.loss"). A value that a trial does
        not have is None.
        """
        return trials_frame(self._home, [self.id])

    def plot(self) -> Picture:
        """Draws charts of the experiment, which a notebook shows.

        If it was submitted, they show the searcher's metric of all trials, else all metrics of its newest trials.
        """
        from core_sdk._analysis.charts.experiments import experiment_charts
        from core_sdk._analysis.charts.picture import Picture

        return Picture(experiment_charts(self._home, self.id))

    def pause(self) -> None:
        """Asks each running trial to stop, like `Trial.pause`. No trial is started until `activate`.

        If the experiment was not submitted, raises `AttemptError` if none of its trials runs.
        """
        self._do(experiments.pause, _BY)

    def activate(self) -> None:
        """Continues the experiment after `pause`. Does nothing if it has been completed.

        Raises `MasterError` if it was canceled or has failed.
        """
        self._do(experiments.activate, _BY)

    def cancel(self) -> None:
        """Ends the experiment. Its trials save their checkpoints and stop. Raises `MasterError` if it has ended."""
        self._do(experiments.cancel, _BY)

    def kill(self) -> None:
        """Ends the experiment at once by killing its trials. Raises `MasterError` if it has ended.

        If the experiment was not submitted, raises `AttemptError` if none of its trials runs.
        """
        self._do(experiments.kill, _BY)

    def archive(self) -> None:
        """Marks the experiment as archived. Raises `ExperimentError` if it has not ended."""
        self._do(experiments.archive)

    def unarchive(self) -> None:
        self._do(experiments.unarchive)

    def download_code(self, output_dir: str | os.PathLike[str] | None = None) -> str:
        """Copies the archive of the experiment's code to `exp-<id>_model_def.tar.gz`, and returns that path.

        Raises `ExperimentError` if the experiment has no code of its own.
        """
        experiments.check_submitted(self._home, self.id, "its code stays where it was run from")
        code = self._home.experiment(self.id).read_submission().code
        if code is None:
            raise ExperimentError.of(self.id, "has no code of its own: its trials run where it was submitted")
        directory = Path(output_dir or ".").expanduser()
        directory.mkdir(parents=True, exist_ok=True)
        copy = directory / f"exp-{self.id}_model_def.tar.gz"
        shutil.copyfile(self._home.code_archive(code), copy)
        return str(copy)

    def set_name(self, name: str) -> None:
        """Renames the experiment. A script that later begins a trial under the old name makes a new experiment.

        Raises `NameTakenError`.
        """
        self._do(experiments.describe, name=checked_text("name", name))

    def set_labels(self, labels: Iterable[str]) -> None:
        self._do(experiments.set_labels, labels)

    def add_label(self, label: str) -> None:
        self._do(experiments.label, add=[label])

    def remove_label(self, label: str) -> None:
        """Removes a label. Does nothing if the experiment does not have it."""
        self._do(experiments.label, remove=[label])

    def set_description(self, description: str) -> None:
        self._do(experiments.describe, description=checked_text("description", description))

    def set_notes(self, notes: str) -> None:
        self._do(experiments.describe, notes=checked_text("notes", notes))

    move_to_project = unavailable(
        "Experiment.move_to_project()", "There are no projects: labels tell experiments apart"
    )

    delete_tensorboard_files = unavailable(
        "Experiment.delete_tensorboard_files()", "delete() removes them with all other records"
    )

    get_pachyderm_config = unavailable("Experiment.get_pachyderm_config()", "Pachyderm's settings are not recorded")

    def delete(self, *, force: bool = False) -> None:
        """Deletes the experiment with its trials, records and checkpoints.

        Raises `ExperimentError` for one that has not ended, and the errors of `Trial.delete`.
        """
        experiments.delete(self._home, self.id, force=force)
