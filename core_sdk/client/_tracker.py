"""Access to a home from Python."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from core_sdk._execution.steering import models
from core_sdk._execution.steering.checks import checked_labels
from core_sdk._ground.environment import Environment
from core_sdk._ground.records import ModelRecord, SearcherMetric, StudyRecord
from core_sdk._home import Home, View, open_view
from core_sdk._home.finding.studies import find_study
from core_sdk._home.finding.time_ledger import TimeLedger, read_ledger
from core_sdk._home.registry import Registry
from core_sdk._home.rows import ExperimentRow
from core_sdk.client._comparison import Comparison
from core_sdk.client._metrics import TrialMetrics
from core_sdk.client._models import Model
from core_sdk.client._objects import Checkpoint, Experiment, Trial
from core_sdk.client._orders.order import ExperimentSortBy, ModelSortBy, OrderBy, TrainingState, in_order
from core_sdk.client._trials_frame import trials_frame
from core_sdk.client._unavailable import FUNCTIONS, unavailable

if TYPE_CHECKING:
    from core_sdk.client._studies import Study
    from core_sdk.client._ui import Ui

logger = logging.getLogger("core_sdk.client")


class Tracker:
    """Reads a home, by default the home of this process's environment. Nothing stays open between calls.

    A home that does not exist is empty. Raises `HomeTooNewError`.
    """

    workspace: ClassVar[str | None] = None
    """The workspace that the functions of the client ask since `login`; None: the home."""

    _patterns: Sequence[str] = ()
    """Those of several homes that are read as one."""

    def __init__(self, home: str | os.PathLike[str] | None = None, *, homes: str | Iterable[str] | None = None) -> None:
        """`homes` are patterns such as "/shared/*/core-sdk": all homes that match and can be read are read as one.

        What lies in a home of one's own can be changed. All else raises `HomesOnlyReadError`.
        """
        self.home: Home
        if homes is not None:
            from core_sdk._home.folders.gathering import gathered_home  # which a home of one's own does not need

            self._patterns = [homes] if isinstance(homes, str) else list(homes)
            self.home = gathered_home(self._patterns)
        else:
            self.home = Home.open(Environment.read().home if home is None else Path(home).expanduser().absolute())

    @classmethod
    def connected(cls, workspace: str) -> Self:
        """Returns a tracker of a workspace on a server, as `core_sdk.client.connect` does."""
        from core_sdk._workspace.asking import home_of_workspace  # requests, which a home of one's own does not need

        tracker = cls.__new__(cls)
        tracker.home = home_of_workspace(workspace)
        return tracker

    @classmethod
    def present(cls) -> Self:
        """Returns the tracker that the functions of the client ask."""
        return cls() if Tracker.workspace is None else cls.connected(Tracker.workspace)

    def index(self) -> AbstractContextManager[View]:
        """Returns a view of the home's present contents, for queries that the client does not have."""
        return open_view(self.home)

    def create_experiment(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any],
        model_dir: str | os.PathLike[str] | None = None,
        includes: Iterable[str | os.PathLike[str]] | None = None,
        *,
        overrides: Sequence[str] = (),
        is_paused: bool = False,
    ) -> Experiment:
        """Submits an experiment; the master, a process in the background, runs its trials.

        `config` is the path of a YAML file, or a mapping with the contents of one. Each trial runs in its own copy of
        the directory `model_dir` and the files or directories `includes`; without either, in the current directory
        itself. `overrides` change the configuration, each as "searcher.max_trials=8". With `is_paused`, nothing runs
        until `Experiment.activate`. Warnings about the configuration are logged.

        Raises `InvalidConfigError`, `CodeDirectoryError`, `ExperimentError` or `MasterError`. It then creates nothing.
        """
        from core_sdk._execution.experiments.submission import (  # imported here, since reading does not need it
            read_config,
            submit,
        )

        text, source = read_config(config)
        submitted = submit(
            Home.create(self.home.root),
            text,
            source=source,
            overrides=overrides,
            model_dir=None if model_dir is None else Path(model_dir),
            includes=[Path(path) for path in includes or ()],
            is_paused=is_paused,
        )
        for warning in submitted.warnings:
            logger.warning("%s", warning)
        return self.get_experiment(submitted.experiment_id)

    def begin_study(
        self,
        name: str,
        metric: str,
        *,
        smaller_is_better: bool = True,
        command: Sequence[str] = (),
        directory: str | os.PathLike[str] | None = None,
        budget_s: float | None = None,
        num_seeds: int = 3,
        num_slots: int = 1,
    ) -> Study:
        """Begins a study of a directory, by default the present one, or changes the settings of the one of this name.

        The arguments are those of `core-sdk study begin`: the metric decides, by a trial's best value, `command` is
        that of a try which names none, and each trial may run for `budget_s`. Raises `InvalidNameError`.
        """
        from core_sdk._execution.studies import begin_study
        from core_sdk.client._studies import Study

        record = StudyRecord(
            directory=str(Path(directory or Path.cwd()).resolve()),
            best_by=SearcherMetric(name=metric, smaller_is_better=smaller_is_better).best_name,
            command=list(command),
            budget_s=budget_s,
            num_seeds=num_seeds,
            num_slots=num_slots,
        )
        home = Home.create(self.home.root)
        return Study(home, begin_study(home, name, record)[0])

    def get_study(self, name: str = "") -> Study:
        """Finds a study by its name, or without one that of the present directory. Raises `StudyNotFoundError`."""
        from core_sdk.client._studies import Study

        return Study(self.home, find_study(self.home, name, Path.cwd()))

    def list_experiments(
        self,
        sort_by: ExperimentSortBy | None = None,
        order_by: OrderBy | None = None,
        experiment_ids: Iterable[int] | None = None,
        labels: Iterable[str] | None = None,
        *,
        states: Iterable[TrainingState] | None = None,
        name: str | None = None,
    ) -> list[Experiment]:
        """Finds experiments with one of `experiment_ids`, all of `labels`, one of `states`, and `name` in their name.

        The case of `name` does not matter. By default the experiments are sorted by id, ascending.
        """
        ids = None if experiment_ids is None else set(experiment_ids)
        state_names = None if states is None else {state.name for state in states}
        all_labels, part = set(labels or ()), (name or "").casefold()
        with self.index() as index:
            rows = [
                row
                for row in index.experiments()
                if (ids is None or row.experiment_id in ids)
                and (state_names is None or row.state in state_names)
                and all_labels.issubset(row.labels)
                and part in row.name.casefold()
            ]
        key = _EXPERIMENT_KEYS[sort_by or ExperimentSortBy.ID]
        return [Experiment(self.home, row) for row in in_order(rows, key, order_by or OrderBy.ASC)]

    def get_experiment(self, experiment_id: int | str) -> Experiment:
        """Finds an experiment by its id, or by its whole name. Raises `ExperimentNotFoundError`."""
        with self.index() as index:
            return Experiment(self.home, index.experiment(experiment_id))

    def get_trial(self, trial_id: int | str) -> Trial:
        """Finds a trial by its id, or by a name that only one has. Raises `TrialNotFoundError`."""
        with self.index() as index:
            return Trial(self.home, index.trial(trial_id))

    def list_trials(self) -> list[Trial]:
        """Lists all trials of the home by id. `Experiment.list_trials` lists one experiment's in any order."""
        with self.index() as index:
            return [Trial(self.home, row) for row in index.trials()]

    def time_ledger(self) -> TimeLedger:
        """Returns where the time of all trials went, added up over all of them."""
        with self.index() as view:
            return read_ledger(view)

    def list_checkpoints(self) -> list[Checkpoint]:
        """Lists all checkpoints of the home that were not deleted, the newest trial's first."""
        with self.index() as index:
            return [Checkpoint(self.home, row) for row in index.checkpoints() if row.state != "DELETED"]

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """Finds a checkpoint by its storage id, even one that was deleted. Raises `CheckpointNotFoundError`."""
        with self.index() as index:
            return Checkpoint(self.home, index.checkpoint(uuid))

    def ui(self, port: int | None = None) -> Ui:
        """Serves the web page of the home from another process, until `close()` or the end of this process.

        A notebook shows the link. Raises `CoreSDKError`, for example for a `port` that is in use.
        """
        from core_sdk.client._ui import Ui

        return Ui(Environment.read().home if self._patterns else self.home.root, port, self._patterns)

    def create_model(
        self,
        name: str,
        description: str | None = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Iterable[str] | None = None,
    ) -> Model:
        """Makes a model without versions in the registry. Raises `NameTakenError` or `HomeNotWritableError`."""
        chosen = checked_labels(labels or ())
        record = models.create(self.home, name, description=description or "", metadata=metadata, labels=chosen)
        return Model(self.home, record)

    def get_model(self, identifier: str | int) -> Model:
        """Finds a model by its name, or by its id if that is an int. Raises `ModelNotFoundError`."""
        return Model(self.home, Registry(self.home).model(identifier))

    get_model_by_id = get_model

    def list_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: OrderBy = OrderBy.ASC,
        name: str | None = None,
        description: str | None = None,
        model_id: int | None = None,
    ) -> list[Model]:
        """Finds models with `name` in their name and `description` in their description, in upper or lower case."""
        part, words = (name or "").casefold(), (description or "").casefold()
        records = [
            record
            for record in Registry(self.home).models()
            if part in record.name.casefold()
            and words in record.description.casefold()
            and model_id in (None, record.model_id)
        ]
        return [Model(self.home, record) for record in in_order(records, _MODEL_KEYS[sort_by], order_by)]

    get_models = list_models

    def get_model_labels(self) -> list[str]:
        """Lists the labels of all models, the most frequent ones first."""
        counts = Counter(label for record in Registry(self.home).models() for label in record.labels)
        return [label for label, _ in counts.most_common()]

    def iter_trials_metrics(self, trial_ids: Iterable[int], group: str) -> Iterator[TrialMetrics]:
        """Yields the reports of one trial after another, like `Trial.iter_metrics`.

        Raises `TrialNotFoundError` at the call, not during the iteration.
        """
        with self.index() as index:
            trials = [Trial(self.home, index.trial(trial_id)) for trial_id in trial_ids]
        return (metrics for trial in trials for metrics in trial.iter_metrics(group))

    stream_trials_metrics = iter_trials_metrics

    def trials_frame(self, experiment_ids: Iterable[int] | None = None) -> dict[str, list[Any]]:
        """Returns the trials of several experiments, by default of all, as columns, like `Experiment.trials_frame`."""
        if experiment_ids is None:
            with self.index() as index:
                experiment_ids = [row.experiment_id for row in index.experiments()]
        return trials_frame(self.home, experiment_ids)

    def compare(
        self,
        trial_ids: Iterable[int] | None = None,
        *,
        experiment: int | str | None = None,
        group_by: Iterable[str],
        best: str | None = None,
    ) -> Comparison:
        """Groups trials that have the same values, for example those that differ only in their seed.

        The trials are given by `trial_ids`, or are all of an `experiment` but archived ones. Each name of `group_by` is
        a hyperparameter (nested ones with dots: "optimizer.lr"), "label", which stands for all labels of a trial, or
        another name of `core-sdk trial list`. `best` says which trial of a group is the best: "min.loss" or
        "max.accuracy". Without it the searcher's metric decides, or else the smallest value of the first metric.

        Raises `ValueError` for a name that no trial has, `TrialNotFoundError` or `ExperimentNotFoundError`.
        """
        if (trial_ids is None) == (experiment is None):
            raise ValueError("give either trial_ids or an experiment")
        if experiment is not None:
            with self.index() as index:
                rows = index.trials(index.experiment(experiment).experiment_id)
            trial_ids = [row.trial_id for row in rows if not row.is_archived]
        return Comparison(self.home, trial_ids or (), list(group_by), best)

    def stream_trials_training_metrics(self, trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
        """Yields the reports of the group "training", like `iter_trials_metrics`."""
        return self.iter_trials_metrics(trial_ids, "training")

    def stream_trials_validation_metrics(self, trial_ids: Iterable[int]) -> Iterator[TrialMetrics]:
        """Yields the reports of the group "validation", like `iter_trials_metrics`."""
        return self.iter_trials_metrics(trial_ids, "validation")


class Determined(Tracker):
    """A `Tracker` under the name that Determined gives it, of the home or of the workspace that `master` names.

    Like `login`, it ignores all else with a warning.
    """

    def __init__(
        self,
        master: str | None = None,
        user: str | None = None,
        password: str | None = None,
        cert_path: str | None = None,
        cert_name: str | None = None,
        noverify: bool = False,
    ) -> None:
        workspace = _workspace_of(master, user, password, cert_path, cert_name, noverify)
        super().__init__()
        if workspace is not None:
            self.home = Tracker.connected(workspace).home

    def logout(self) -> None:
        """Does nothing: a home needs no login."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in FUNCTIONS:
                return unavailable(f"Determined.{name}()", FUNCTIONS[name])
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def login(
    master: str | None = None,
    user: str | None = None,
    password: str | None = None,
    cert_path: str | None = None,
    cert_name: str | None = None,
    noverify: bool = False,
) -> None:
    """Lets the functions of the client ask the workspace at the address `master`, or without it the home.

    The token is that of `core-sdk login` or of `CORE_SDK_TOKEN`. All else is ignored with a warning, and so is a
    `master` that is the address of no workspace.
    """
    Tracker.workspace = _workspace_of(master, user, password, cert_path, cert_name, noverify)


def _workspace_of(
    master: str | None,
    user: str | None,
    password: str | None,
    cert_path: str | None,
    cert_name: str | None,
    noverify: bool,
) -> str | None:
    """Returns the workspace that is at the address, or None, and warns of what is ignored."""
    workspace = master if master is not None and re.fullmatch(r"https?://[^/]+/w/[^/]+/?", master) else None
    given = {
        "master": None if workspace else master,
        "user": user,
        "password": password,
        "cert_path": cert_path,
        "cert_name": cert_name,
        "noverify": noverify or None,
    }
    names = ", ".join(name for name, value in given.items() if value is not None)
    if names and workspace:
        logger.warning("ignored: %s. The token of %s is that of `core-sdk login`, or CORE_SDK_TOKEN", names, workspace)
    elif names:
        logger.warning(
            "a home needs no login (ignored: %s): records are read from %s. Choose another one with CORE_SDK_HOME, "
            "or give the address of a workspace, such as https://lab.example.org/w/vision",
            names,
            Tracker().home.root,
        )
    return workspace


_EXPERIMENT_KEYS: Mapping[ExperimentSortBy, Callable[[ExperimentRow], Any]] = {
    ExperimentSortBy.ID: lambda row: row.experiment_id,
    ExperimentSortBy.NAME: lambda row: row.name,
    ExperimentSortBy.DESCRIPTION: lambda row: row.description,
    ExperimentSortBy.START_TIME: lambda row: row.created,
    ExperimentSortBy.STATE: lambda row: row.state,
    ExperimentSortBy.NUM_TRIALS: lambda row: row.num_trials,
    ExperimentSortBy.END_TIME: lambda row: row.search and row.search.ended,
    ExperimentSortBy.PROGRESS: lambda row: row.search and row.search.progress,
    ExperimentSortBy.FORKED_FROM: lambda row: row.parent,
}

_MODEL_KEYS: Mapping[ModelSortBy, Callable[[ModelRecord], Any]] = {
    ModelSortBy.NAME: lambda record: record.name,
    ModelSortBy.DESCRIPTION: lambda record: record.description,
    ModelSortBy.CREATION_TIME: lambda record: record.created,
    ModelSortBy.LAST_UPDATED_TIME: lambda record: record.updated,
    ModelSortBy.NUM_VERSIONS: lambda record: len(record.versions),
}
