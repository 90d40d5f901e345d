"""Records what a script tells about its training: metrics, progress, status, metadata, the end."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from core_sdk._distributed import DistributedContext
from core_sdk._ground.data.waits import DataWait
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import (
    MAX_DEPTH,
    MAX_INT,
    MEDIA_DIRECTORY,
    MEDIA_TAG,
    EarlyExit,
    Media,
    MetadataSet,
    Metric,
    ProgressReported,
    Report,
    SearcherMetric,
    StatusSet,
    check_name,
    check_steps,
    check_text,
    from_json,
    number_to_json,
    scalar,
    to_json,
)
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.journal import Journal
from core_sdk.core._resumption import Resumption
from core_sdk.core._train._event_files import TensorboardMode, copy_event_files
from core_sdk.core._train._ledger import Ledger
from core_sdk.core._train._prepared import Record, prepared_report
from core_sdk.errors import HomeError, InvalidMetricError

if TYPE_CHECKING:
    from core_sdk._home import View

logger = logging.getLogger("core_sdk.train")

TRAINING = "training"
VALIDATION = "validation"
_NUMERIC_GROUPS = (TRAINING, VALIDATION)
_JSON_TYPES = (bool, str, list, tuple, Mapping, type(None), Media)

# Names that scripts report with the metric proper, to say how far they are.
_TIME_METRICS = frozenset({"batches", "epoch", "epochs", "records"})


class EarlyExitReason(enum.Enum):
    """The reason why a script ends before its training is complete."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext(OfOneProcess):
    """Reports metrics, progress, status and metadata of the training.

    When a `report_*` call returns, the record survives any death of the process. No call waits for a network or a
    database. Values may be Python or numpy numbers, or arrays and tensors of one element: ints up to 2**63, infinities
    and every NaN with its bits, and the media of `core_sdk.media`, also in lists and mappings. In "training" and
    "validation" a metric that is None is left out, which a warning says once. Anything else raises
    `InvalidMetricError`, naming its key, and records nothing. So does a report that repeats the newest step of a
    metric: it raises `DuplicateMetricError`. One that goes back in steps is recorded, which a warning says once; of two
    reports of a metric at one step the later counts. Safe in threads.

    Any rank may report, and each report is kept with its rank; two ranks may report the same metric of the same step.
    A reader that asks for no rank gets each metric from the lowest rank that has reported it. Only the chief records
    status, metadata and an early exit: on other ranks these calls check their arguments and record nothing, which a
    warning says once. A rank whose node does not see the chief's home records nothing, and warns of that too.

    `checkpoint` is for a writer (`init(writer=…)`): the storage id of what it has evaluated, whose step
    `steps_completed` must be. The report is then visible as long as that checkpoint's step is: once an attempt goes on
    from an earlier step, both are superseded. Without `checkpoint` the step is one of the newest attempt. The first
    report about a checkpoint reads the trial's records, and raises `CheckpointNotFoundError` if none has it, and
    `ValueError` if its step is another; one that was superseded is warned of. A writer's steps may come in any order,
    and any may come again: then the later report counts.
    """

    def __init__(
        self,
        *,
        folder: TrialFolder,
        journal: Journal,
        ledger: Ledger,
        distributed: DistributedContext,
        tensorboard_mode: TensorboardMode,
        is_home_shared: bool = True,
        resumption: Resumption | None = None,
    ) -> None:
        """`ledger` decides which reports are recorded. `folder` is the trial's.

        A rank without a shared home sees neither `folder` nor the records of its home.
        """
        self._home = Home(folder.home_root)
        self._folder = folder
        self._journal = journal
        self._ledger = ledger
        self._distributed = distributed
        self._tensorboard_mode = tensorboard_mode
        self._is_home_shared = is_home_shared
        self._private_tensorboard_path: Path | None = None
        self._resumption = resumption
        self._prepared: dict[str, Record] = {}
        self._record_training: Record = lambda *_: False
        self._has_warned_of_none = False

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: list[dict[str, Any]] | None = None,
        *,
        checkpoint: str | None = None,
    ) -> None:
        """Reports the training up to `steps_completed`.

        `batch_metrics` holds one dict per batch since the last report; the last one ends at `steps_completed`.
        """
        if batch_metrics is None and checkpoint is None and self._record_training(steps_completed, metrics):
            return
        self._report(TRAINING, steps_completed, metrics, batch_metrics, checkpoint)

    def report_validation_metrics(
        self, steps_completed: int, metrics: dict[str, Any], *, checkpoint: str | None = None
    ) -> None:
        """Reports a validation after `steps_completed` steps. Searches compare trials by its metrics."""
        self._report(VALIDATION, steps_completed, metrics, None, checkpoint)

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        *,
        checkpoint: str | None = None,
        replace: bool = False,
    ) -> None:
        """Reports metrics of a group, any non-empty text of at most 1 KB; it may be "training" or "validation".

        In other groups than these two, metrics may also be JSON values: None, bools, strings, and lists and
        string-keyed mappings of values, at most 100 levels deep. They are kept exactly; only numbers have curves.

        With `replace` a metric that was reported at the newest step may be reported again, and the later value counts.
        """
        self._report(group, steps_completed, metrics, None, checkpoint, replace)

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
        checkpoint: str | None = None,
        replace: bool = False,
    ) -> None:
        if batch_metrics is None and checkpoint is None and type(group) is str:
            record = self._prepared.get(group)
            if record is not None and record(steps_completed, metrics):
                return
        if type(group) is not str:
            group = check_name("the metric group", group)
        if type(steps_completed) is not int or not 0 <= steps_completed < MAX_INT:
            steps_completed = check_steps(steps_completed)
        batches = None if batch_metrics is None else self._checked_batches(group, batch_metrics)
        names: Iterable[str] = metrics
        json_metrics = None
        if not _is_plain(metrics):
            media: list[tuple[Media, dict[str, Any]]] = []
            metrics, json_metrics = _checked_metrics(group, self._without_none(group, metrics), media)
            names = metrics if json_metrics is None else (*metrics, *json_metrics)
            for value, named in media:
                self._keep(value, named)
        with self._journal.lock:
            self._ledger.enter(group, steps_completed, names, checkpoint, may_repeat=replace)
            self._journal.append_under_lock(
                Report(time.time(), group, steps_completed, metrics, batches, json_metrics, DataWait.of_process.take())
            )
        resumption = self._resumption
        if resumption is not None:
            resumption.heed_report(group, steps_completed)
            if resumption.is_settled:
                self._resumption = None
        elif group not in self._prepared and (newest := self._ledger.newest_steps(group)) is not None:
            self._prepared[group] = prepared_report(group, newest, self._journal)
            if group == TRAINING:
                self._record_training = self._prepared[group]

    def _checked_batches(self, group: str, batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        checked: list[dict[str, Any]] = []
        known_names: Any = None
        for metrics in batches:
            numbers = metrics if _is_plain(metrics) else _numbers(group, self._without_none(group, metrics))
            if numbers.keys() != known_names:  # usually all batches have the same
                for name in numbers:
                    check_name(f"the metric name in a batch of group {group!r}", name)
                known_names = numbers.keys()
            checked.append(numbers)
        return checked

    def _without_none(self, group: str, metrics: Any) -> dict[str, Any]:
        """Returns a copy of the metrics, in groups of numbers without those that are None."""
        given = _as_dict(group, metrics)
        if group not in _NUMERIC_GROUPS:
            return given
        numbers = {name: value for name, value in given.items() if value is not None}
        if len(numbers) < len(given) and not self._has_warned_of_none:
            self._has_warned_of_none = True
            name = next(name for name, value in given.items() if value is None)
            logger.warning("metric %r of group %r is None: metrics that are None are left out", name, group)
        return numbers

    def _keep(self, media: Media, named: dict[str, Any]) -> None:
        """Writes the file of a value before the record that names it."""
        problem = self._journal.keep_file(f"{MEDIA_DIRECTORY}/{media.file.name}", media.content)
        if problem:
            named[MEDIA_TAG]["problem"] = problem

    def report_progress(self, progress: float) -> None:
        """Records the fraction of the training that is done, 0 to 1; `ValueError` outside."""
        try:
            progress = float(progress)
        except ValueError:
            raise TypeError(f"progress is {progress!r}; it must be a number between 0 and 1") from None
        if not 0.0 <= progress <= 1.0:
            raise ValueError(f"progress is {progress}; it must be between 0 and 1")
        self._journal.append(ProgressReported(time=time.time(), progress=progress))

    def set_status(self, status: str) -> None:
        """Records what the script is doing, as free text for people."""
        self._journal.append(StatusSet(time=time.time(), status=check_text("the status", status)))

    def set_metadata(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Replaces the trial's metadata; returns it as it is stored. `TypeError` for what JSON cannot keep."""
        if not isinstance(metadata, Mapping):
            raise TypeError(f"metadata must be a dict, not {type(metadata).__name__}")
        stored = to_json(metadata, "metadata")
        self._journal.append(MetadataSet(time=time.time(), metadata=stored))
        return dict(from_json(stored))

    def get_metadata(self) -> dict[str, Any] | None:
        """Returns the trial's metadata, from this or an earlier attempt. It asks the index: avoid it in inner loops.

        Not collective: any rank may call. Raises `HomeError` if its node does not see the chief's home.
        """
        with self._view("get_metadata()") as view:
            return view.trial(self._folder.trial_id).metadata

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Records why the training ends early; the script then ends by itself."""
        self._journal.append(EarlyExit(time=time.time(), reason=EarlyExitReason(reason).value))

    def get_experiment_best_validation(self) -> float | None:
        """Returns the best value of the deciding metric over all trials of the experiment; None while there is none.

        That is the searcher's metric, or the `metric` of `init()`. Without either it is the only metric that is
        reported for validation, apart from time metrics such as "epochs", and its smallest value is the best; None if
        there are several. It asks the home: avoid it in inner loops.

        Not collective: any rank may call. Raises `HomeError` if its node does not see the chief's home.
        """
        with self._view("get_experiment_best_validation()") as view:
            experiment_id = self._home.trial(self._folder.trial_id).read_record().experiment_id
            metric = self._home.experiment(experiment_id).read().searcher_metric
            if metric is None:
                known = view.metric_names(experiment_id)
                names = {name for group, name in known if group == "validation"} - _TIME_METRICS
                if len(names) != 1:
                    logger.info("no best validation: which of %s is meant is not configured", sorted(names))
                    return None
                metric = SearcherMetric(name=names.pop())
            name = metric.name.removeprefix("validation.")
            reached = view.best_values(experiment_id, "validation", name, smaller_is_better=metric.smaller_is_better)
            return next(iter(metric.best_first(reached.values(), float)), None)

    def _view(self, call: str) -> AbstractContextManager[View]:
        if not self._is_home_shared:
            raise HomeError(
                f"{call} cannot answer on rank {self._distributed.rank}, whose node does not see the home "
                f"{self._home.root} of rank 0. Call it on rank 0 and broadcast() the result, or set CORE_SDK_HOME to a "
                "directory that all nodes share."
            )
        return open_view(self._home)

    def get_tensorboard_path(self) -> Path:
        """Returns a directory for event files of your own, which is made on the first call.

        In mode AUTO it is the directory that TensorBoard shows, the same for all ranks. In mode MANUAL each rank has
        its own, from which `upload_tensorboard_files` takes the files. On a node that does not see the chief's home it
        is a temporary directory, whose files are not kept. Images, audio, histograms and texts in the files are media
        of the trial, like those that are reported. Scalars in them are not metrics: only TensorBoard shows them.
        """
        if not self._is_home_shared:
            return self._temporary_tensorboard_path()
        is_manual = self._tensorboard_mode is TensorboardMode.MANUAL
        folder, rank = self._folder, self._distributed.rank
        path = folder.tensorboard_source_path(rank) if is_manual else folder.tensorboard_path
        make_directory(path, exist_ok=True)
        return path

    def _temporary_tensorboard_path(self) -> Path:
        if self._private_tensorboard_path is None:
            import tempfile  # not for all scripts

            self._private_tensorboard_path = Path(tempfile.mkdtemp(prefix="core-sdk-tensorboard-"))
            logger.warning(
                "event files of rank %d are not kept: its node does not see the home of rank 0, and they go to %s",
                self._distributed.rank,
                self._private_tensorboard_path,
            )
        return self._private_tensorboard_path

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = lambda path: True,
        mangler: Callable[[Path, int], Path] = lambda path, rank: path,
    ) -> None:
        """Copies files from `get_tensorboard_path()` to where TensorBoard shows them; mode MANUAL only.

        `selector` is given absolute paths; `mangler` gets the path relative to the directory, and the rank, and
        returns the relative path of the copy: ranks whose files have the same names need different ones there.
        Raises `RuntimeError` in mode AUTO, and `UnsafePathError` for a copy that would leave the directory. Does
        nothing on a node that does not see the chief's home.
        """
        if self._tensorboard_mode is not TensorboardMode.MANUAL:
            raise RuntimeError(
                "upload_tensorboard_files() is for TensorboardMode.MANUAL; in AUTO files are kept anyway"
            )
        source = self.get_tensorboard_path()
        if self._is_home_shared:
            rank = self._distributed.rank
            copy_event_files(source, self._folder.tensorboard_path, selector, mangler, rank)


def _as_dict(group: str, metrics: Any) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics of group {group!r} must be a dict, not {type(metrics).__name__}")
    return dict(metrics)


def _checked_metrics(
    group: str, metrics: Mapping[str, Any], media: list[tuple[Media, dict[str, Any]]]
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the numbers, and the other values: media, and in a generic group also JSON values.

    Each medium is added to `media` with the JSON that stands for it.
    """
    is_other = _is_media if group in _NUMERIC_GROUPS else _is_json
    others = {name: value for name, value in metrics.items() if is_other(value)}
    numbers = _numbers(group, {name: value for name, value in metrics.items() if name not in others})
    return numbers, {name: _as_json(group, name, value, media) for name, value in others.items()} or None


def _is_json(value: Any) -> bool:
    return isinstance(value, _JSON_TYPES)


def _is_media(value: Any, depth: int = 0) -> bool:
    """Returns whether the value is a medium, or a list or mapping of media only."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and depth < MAX_DEPTH and all(_is_media(item, depth + 1) for item in value)
    return isinstance(value, Media)


def _is_plain(metrics: Mapping[str, Any]) -> TypeGuard[dict[str, Any]]:
    """Returns whether it is a dict of finite floats: this is the usual report, and is not copied."""
    if type(metrics) is not dict:
        return False
    for value in metrics.values():  # noqa: SIM110 - twice as fast as a generator
        if type(value) is not float or not isfinite(value):
            return False
    return True


def _numbers(group: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: number_to_json(_as_metric(group, name, value)) for name, value in metrics.items()}


def _as_metric(group: str, name: str, value: Any) -> Metric:
    if not isinstance(value, (int, float)):
        try:
            value = scalar(value.reshape(()) if _is_one_element(value) else value)
        except TypeError as error:
            problem = f"{error}; a metric is a number, or an array or tensor of one element"
            raise InvalidMetricError(group, name, problem) from error
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        if not -MAX_INT <= value <= MAX_INT:
            raise InvalidMetricError(group, name, f"is {value}, an integer beyond 64 bits")
        return int(value)
    raise InvalidMetricError(group, name, f"is a {type(value).__name__}; a metric is a number")


def _is_one_element(value: Any) -> bool:
    shape = getattr(value, "shape", None)
    return isinstance(shape, tuple) and set(shape) == {1} and callable(getattr(value, "reshape", None))


def _as_json(group: str, name: str, value: Any, media: list[tuple[Media, dict[str, Any]]]) -> Any:
    try:
        return to_json(value, "it", media)
    except (TypeError, ValueError) as error:
        raise InvalidMetricError(group, name, f"cannot be kept: {error}") from error
