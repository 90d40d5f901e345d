"""A run: what a script logs to, which is a trial."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from core_sdk import client
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import number_of
from core_sdk.compat.wandb._config import Config
from core_sdk.compat.wandb._missing import missing
from core_sdk.compat.wandb._resuming import RunIdentity
from core_sdk.compat.wandb._rows import (
    EventWriters,
    History,
    MetricDefinition,
    ModuleWatch,
    Summary,
    SummaryFigures,
    summary_figures,
)
from core_sdk.compat.wandb._settings import AlertLevel, Settings
from core_sdk.compat.wandb._stored import Artifact, ArtifactStore, SavedFiles, artifact_of_path
from core_sdk.compat.wandb.errors import UsageError
from core_sdk.core import Context

logger = logging.getLogger("core_sdk.compat")


class Run(OfOneProcess):
    """A trial by wandb's names. A process has one at a time; in a rank or mode that records nothing it is disabled.

    What `log()`, `config` and `summary` are given is recorded when the call returns.
    """

    _active: ClassVar[Run | None] = None

    def __init__(
        self,
        context: Context | None,
        identity: RunIdentity,
        arguments: Mapping[str, Any],
        config: Config,
        settings: Settings,
        *,
        is_own: bool = True,
    ) -> None:
        """Makes a run of a `context`, or a disabled one without. `finish()` closes only a Context that is its `own`.

        `arguments` are the ones that `init()` was given.
        """
        self.id = identity.id
        self.config = config
        self.settings = settings
        self.resumed = identity.last_step is not None
        self.starting_step = 0 if identity.last_step is None else identity.last_step + 1
        self.start_time = time.time()
        self.project = arguments.get("project") or "uncategorized"
        self.entity = arguments.get("entity") or ""
        self.group = arguments.get("group") or ""
        self.job_type = arguments.get("job_type") or ""
        self.disabled = context is None
        self.offline = True
        self.url = self.sweep_id = None
        self.summary = Summary(self._record_summary)
        self._name: str | None = arguments.get("name")
        self._notes: str | None = arguments.get("notes")
        self._tags = tuple(arguments.get("tags") or ())
        self._context = context
        self._is_own = is_own
        self._history = History(context.train, self.starting_step) if context is not None else None
        self._figures: dict[str, SummaryFigures] = {}
        self._watches: list[ModuleWatch] = []
        self._event_writers: EventWriters | None = None
        self._files = SavedFiles(context, Path(arguments.get("dir") or "."), self.id)
        self._lock = threading.RLock()
        self._is_finished = False
        Run._active = self
        # Before Python closes the Context that the script has left open.
        atexit.register(self._conclude)

    @classmethod
    def active(cls) -> Run | None:
        """Returns the run that `init()` has begun and `finish()` has not ended."""
        return cls._active

    @property
    def step(self) -> int:
        """The step of the next call of `log()` without one."""
        return self.starting_step if self._history is None else self._history.step

    @property
    def path(self) -> str:
        """The entity, if there is one, the project and the id."""
        return "/".join(filter(None, (self.entity, self.project, self.id)))

    @property
    def dir(self) -> str:
        """A directory for files of the run, which are stored when it ends."""
        return str(self._files.directory())

    @property
    def name(self) -> str | None:
        """The name of the trial. A change is recorded."""
        if self._name is None and self._context is not None:
            self._name = self._trial().name
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        if self._context is not None:
            self._trial().set_name(name)

    @property
    def notes(self) -> str | None:
        """The notes of the trial, in Markdown. A change is recorded."""
        return self._notes

    @notes.setter
    def notes(self, notes: str) -> None:
        self._notes = notes
        if self._context is not None:
            self._trial().set_notes(notes)

    @property
    def tags(self) -> tuple[str, ...]:
        """Labels of the trial. A change is recorded."""
        return self._tags

    @tags.setter
    def tags(self, tags: Sequence[str]) -> None:
        if self._context is not None:
            trial = self._trial()
            for tag in set(self._tags) - set(tags):
                trial.remove_label(tag)
            for tag in tags:
                trial.add_label(tag)
        self._tags = tuple(tags)

    def project_name(self) -> str:
        """Returns the name of the experiment."""
        return self.project

    def get_url(self) -> None:
        """Returns None: `core-sdk ui` shows the run."""

    def log(
        self,
        data: Mapping[str, Any] | None = None,
        step: int | None = None,
        commit: bool | None = None,
        sync: bool | None = None,
    ) -> None:
        """Reports values of a step, which is the next one unless it is given. Without values it only ends the row.

        Raises `UsageError` after `finish()`, `TypeError` for what is no dict with text as keys, and
        `InvalidMetricError` for a value that cannot be kept.
        """
        with self._lock:
            if (history := self._open_history("log()")) is None:
                return
            values = history.log({} if data is None else data, step, commit)
            self.summary.heed(values)
            for name, value in values.items():
                if history.definitions.of(name).figures and (number := number_of(value)) is not None:
                    self._figures.setdefault(name, SummaryFigures()).add(number)

    def define_metric(
        self,
        name: str,
        step_metric: str | MetricDefinition | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        goal: str | None = None,
        overwrite: bool | None = None,
    ) -> MetricDefinition:
        """Says over which metric another one is drawn, and what is recorded of it at the end.

        A `name` may end with "*". `hidden` changes nothing. Raises `ValueError` for an unknown figure of the summary.
        """
        if not name or "*" in name[:-1]:
            raise ValueError(f"define_metric({name!r}): the name must not be empty, and a * can only end it")
        axis = step_metric.name if isinstance(step_metric, MetricDefinition) else step_metric
        definition = MetricDefinition(name, axis, step_sync is not False, summary_figures(summary, goal))
        if (history := self._open_history("define_metric()")) is not None:
            history.definitions.define(definition, overwrite=bool(overwrite))
        return definition

    def alert(
        self, title: str, text: str = "", level: AlertLevel | str | None = None, wait_duration: object = None
    ) -> None:
        """Records an alert of the trial. Each call is one, whatever `wait_duration` says."""
        if self._context is not None:
            name: Any = level.value if isinstance(level, AlertLevel) else level
            self._context.alert(title, text, name and name.lower())

    def watch(
        self,
        models: Any,
        criterion: object = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        idx: int | None = None,
        log_graph: bool = False,
    ) -> None:
        """Reports histograms of gradients, parameters or both ("all") of modules, at every `log_freq`-th pass.

        They are part of the row that the next `log()` fills. The graph of a model is not recorded.
        """
        if log not in ("gradients", "parameters", "all", None):
            raise ValueError(f'watch(log={log!r}): it must be "gradients", "parameters", "all" or None')
        if log_graph:
            logger.warning("watch(log_graph=True): the graph of a model is not recorded")
        if self._history is None or log is None:
            return
        for number, model in enumerate(models if isinstance(models, (list, tuple)) else [models], idx or 0):
            prefix = f"graph_{number}" if number else ""
            self._watches.append(ModuleWatch(model, log, log_freq, prefix, self._log_beside))

    def unwatch(self, models: Any = None) -> None:
        """Ends what `watch()` has begun, for some modules or for all."""
        chosen = None if models is None else models if isinstance(models, (list, tuple)) else [models]
        for watch in [each for each in self._watches if chosen is None or any(each.model is one for one in chosen)]:
            watch.end()
            self._watches.remove(watch)

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> list[str]:
        """Stores files in a checkpoint now, and those that have changed again at the end of the run."""
        return [] if glob_str is None else self._files.save(str(glob_str), base_path, policy, self._last_step())

    def log_artifact(
        self,
        artifact_or_path: Artifact | str | Path,
        name: str | None = None,
        type: str | None = None,
        aliases: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
    ) -> Artifact:
        """Stores an artifact in a checkpoint, which becomes the newest version of the model of its name."""
        artifact = artifact_of_path(artifact_or_path, name or f"run-{self.id}", type or "unspecified")
        if self._context is not None:
            ArtifactStore(self._context).store(artifact, [*(aliases or ()), *(tags or ())], self._last_step())
        return artifact

    def use_artifact(self, artifact_or_name: Artifact | str, type: str | None = None, **unused: Any) -> Artifact:
        """Returns the artifact "name", "name:latest", "name:v3" or "name:alias", and records that the trial uses it."""
        if isinstance(artifact_or_name, Artifact):
            return artifact_or_name if artifact_or_name.is_stored else self.log_artifact(artifact_or_name)
        return ArtifactStore(self._context).find(artifact_or_name)

    def log_model(self, path: str | Path, name: str | None = None, aliases: Sequence[str] | None = None) -> Artifact:
        """Stores a file or a directory as an artifact of the type "model"."""
        return self.log_artifact(path, name, "model", aliases)

    def use_model(self, name: str) -> str:
        """Returns the path of a copy of the model's files: of the file itself if it is one."""
        directory = Path(self.use_artifact(name).download())
        files = [path for path in directory.rglob("*") if path.is_file()]
        return str(files[0] if len(files) == 1 else directory)

    def log_code(self, *args: object, **kwargs: object) -> None:
        """Says that the commit is recorded instead of the code."""
        logger.warning("log_code(): code is not copied; `core-sdk trial describe` names its commit")

    def mark_preempting(self) -> None:
        """Does nothing: the end of the process tells how the trial has ended."""

    def sync_tensorboard(self) -> None:
        """Reports what `SummaryWriter`s write, too, until the run ends."""
        if self._history is not None and self._event_writers is None:
            self._event_writers = EventWriters(self._report_event)

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """Ends the run: the trial is completed, or has failed with an `exit_code` other than 0."""
        self._end(RuntimeError(f"wandb.finish(exit_code={exit_code})") if exit_code else None)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self._end(exc_val)

    def __repr__(self) -> str:
        return f"<Run {self.path} of {self._context!r}>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"wandb.Run.{name}"), name=name, obj=self)

    def _end(self, error: BaseException | None) -> None:
        if self._is_finished:
            return
        try:
            self._conclude()
        finally:
            self._is_finished = True
            if Run._active is self:
                Run._active = None
            if self._context is not None and self._is_own:
                self._context.close(type(error) if error else None, error)

    def _conclude(self) -> None:
        """Records what is only known at the end."""
        atexit.unregister(self._conclude)
        self.unwatch()
        if self._event_writers is not None:
            self._event_writers.end()
        if self._history is None:
            return
        figures = {
            f"{name}.{figure}": value
            for name, each in self._figures.items()
            for figure, value in each.chosen(self._history.definitions.of(name).figures).items()
        }
        self.summary.update(figures)
        if self._history.num_ignored > 1:
            logger.warning("%d calls of log() were not recorded, for steps that go back", self._history.num_ignored)
        self._files.store_changed(self._last_step())

    def _trial(self) -> client.Trial:
        if self._context is None:
            raise UsageError("a run that is disabled has no trial")
        return client.get_trial(self._context.info.trial.trial_id)

    def _open_history(self, call: str) -> History | None:
        if self._is_finished:
            raise UsageError(
                f"{call} of run {self.id!r} was called after finish(): begin another run with wandb.init()"
            )
        return self._history

    def _last_step(self) -> int:
        return self.starting_step if self._history is None else self._history.last_step

    def _record_summary(self, values: Mapping[str, Any]) -> None:
        if self._context is not None and self._history is not None:
            reported = {f"summary/{name}": value for name, value in values.items()}
            self._history.report(reported, self._history.last_step)

    def _log_beside(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            if self._history is not None and not self._is_finished:
                self._history.log(values, None, False)

    def _report_event(self, values: Mapping[str, Any], step: int | None) -> None:
        with self._lock:
            if self._history is not None:
                self._history.report(values, self._history.step if step is None else step)
                self._history.step = max(self._history.step, step or 0)
                self.summary.heed(values)
