"""The result of a training."""

from __future__ import annotations

import contextlib
from functools import cached_property
from pathlib import Path
from typing import Any

from core_sdk._ground.environment import Environment
from core_sdk._ground.files import file_url
from core_sdk._home import Home, TrialFolder
from core_sdk._home.checkpoints import RecordedCheckpoint
from core_sdk._home.history import read_history
from core_sdk._runtime.retention import CheckpointConfig, best
from core_sdk.errors import RecordDamagedError, TrialNotFoundError
from core_sdk.train._checkpoint import Checkpoint, ReportedCheckpoint
from core_sdk.train._values import VALUES


class Result:
    """The trial that a `fit()` has trained. Its reports are read when they are first asked for.

    Reading them raises `TrialNotFoundError` if the trial was deleted meanwhile.
    """

    def __init__(
        self,
        folder: TrialFolder,
        *,
        return_value: Any = None,
        error: Exception | None = None,
        is_stopped: bool = False,
        checkpoint_config: CheckpointConfig | None = None,
    ) -> None:
        self._folder = folder
        self.trial_id = folder.trial_id
        """The id by which `core-sdk trial` and `core_sdk.client` find the trial."""
        self.path = str(folder.path)
        """The trial's folder."""
        self.return_value = return_value
        """The value that the function has returned on rank 0."""
        self.error = error
        self.is_stopped = is_stopped
        """Whether the training was asked to stop before its end, and can be resumed."""
        self._checkpoint_config = checkpoint_config or CheckpointConfig()

    @classmethod
    def from_path(cls, path: str | Path) -> Result:
        """Returns the result of the trial with this folder. Raises `TrialNotFoundError`.

        A path of the form `storage_path/name`, as in its `RunConfig`, means the newest trial of that name and storage.
        """
        return cls(find_trial(path))

    @property
    def metrics(self) -> dict[str, Any] | None:
        """The metrics of the last report; None without reports."""
        return self._reports[-1][1] if self._reports else None

    @cached_property
    def metrics_dataframe(self) -> Any:
        """A row for each report, as a `pandas.DataFrame`; None without reports."""
        if not self._reports:
            return None
        try:
            import pandas  # not everybody has it
        except ImportError as error:
            raise ImportError("result.metrics_dataframe needs pandas: pip install pandas") from error
        return pandas.DataFrame([{"steps_completed": steps, **metrics} for steps, metrics in self._reports])

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint, or None."""
        return self._reported[-1].checkpoint if self._reported else None

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """The best `num_to_keep` checkpoints, the best one last, with the metrics that were reported with them.

        Without a `checkpoint_score_attribute`, and after `from_path()`, they are in the order of their reports.
        """
        found = map(ReportedCheckpoint.of, (each.record for each in best(self._checkpoints, self._checkpoint_config)))
        return [(each.checkpoint, each.metrics) for each in found]

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Returns the checkpoint with the highest or lowest value of a metric; `mode` is "max" or "min".

        Raises `ValueError` for another mode, and if no report with a checkpoint has the metric.
        """
        if mode not in ("max", "min"):
            raise ValueError(f"mode is {mode!r}; it must be 'max' or 'min'")
        if not self._reported:
            return None
        scored = [each for each in self._reported if metric in each.metrics]
        if not scored:
            known = ", ".join(sorted({name for each in self._reported for name in each.metrics}))
            raise ValueError(f"no checkpoint was reported with the metric {metric!r}; there are {known}")
        return (max if mode == "max" else min)(scored, key=lambda each: each.metrics[metric]).checkpoint

    @cached_property
    def _reports(self) -> list[tuple[int, dict[str, Any]]]:
        from core_sdk.client import Tracker  # slow to import

        found = Tracker(self._folder.home_root).get_trial(self.trial_id).iter_metrics(rank=0)
        reports: list[tuple[int, dict[str, Any]]] = []
        values: dict[int, dict[str, Any]] = {}
        for each in found:
            if each.group in ("training", "validation"):
                reports.append((each.steps_completed or 0, dict(each.metrics)))
            elif each.group == VALUES:
                values[each.steps_completed or 0] = dict(each.metrics)
        return [(step, metrics | values.get(step, {})) for step, metrics in reports]

    @cached_property
    def _checkpoints(self) -> list[RecordedCheckpoint]:
        self._folder.read_record()
        return [each for each in read_history(self._folder).checkpoints if not each.is_superseded]

    @cached_property
    def _reported(self) -> list[ReportedCheckpoint]:
        return [ReportedCheckpoint.of(each.record) for each in self._checkpoints]

    def __repr__(self) -> str:
        return f"Result(trial_id={self.trial_id}, metrics={self.metrics}, checkpoint={self.checkpoint})"


def find_trial(path: str | Path) -> TrialFolder:
    """Returns the trial with this folder, or the newest one of this name and storage. Raises `TrialNotFoundError`."""
    folder = Path(path).absolute()
    if folder.parent.name == "runs" and folder.name.isdecimal():
        trial = TrialFolder(folder.parent.parent, int(folder.name))
        trial.read_record()
        return trial
    home = Home(Environment.read().home)
    experiment = home.find_experiment(folder.name)
    if experiment is None:
        raise TrialNotFoundError(folder.name, folder.parent)
    for trial_id in reversed(home.trial_ids()):
        trial = home.folder(trial_id)
        with contextlib.suppress(RecordDamagedError, TrialNotFoundError):  # it is no trial that could be meant
            if trial.read_record().experiment_id == experiment.experiment_id and _stores_in(trial, folder.parent):
                return trial
    raise TrialNotFoundError(folder.name, folder.parent)


def _stores_in(trial: TrialFolder, directory: Path) -> bool:
    return any(each.record.storage == file_url(directory) for each in read_history(trial).checkpoints)
