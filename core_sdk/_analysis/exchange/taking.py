"""Makes trials of the runs of other tools.

A trial keeps the key of its run, by which it is known when the run is imported again. It is made aside, and renamed
into its place when it is complete: an import that is killed leaves whole trials, and the next one takes the others.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import chain, islice, starmap
from math import inf, isfinite
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from msgspec import structs

from core_sdk._analysis.exchange.run import RESTART, ForeignRun, Row
from core_sdk._ground.files import fsync_directory, fsync_tree, write_atomically
from core_sdk._ground.ownership import share_as_parent
from core_sdk._ground.records import (
    FORMAT,
    MAX_INT,
    MAX_SEED,
    AttemptStarted,
    Ended,
    Media,
    MetadataSet,
    Report,
    TrialRecord,
    check_name,
    number_to_json,
    split_metric_name,
    to_json,
    to_json_or_text,
)
from core_sdk._ground.version import __version__
from core_sdk._home import Home, TrialFolder
from core_sdk._home.journal import encode_line, encode_lines
from core_sdk._home.moving.merging import merging
from core_sdk.errors import CoreSDKError, InvalidNameError

_NUM_ROWS_AT_ONCE = 4096
_MAX_TIME = 2.0**40


class TakenRun(NamedTuple):
    run: ForeignRun
    trial_id: int | None
    """The trial that was made of the run; None if there is no new one."""
    fate: Literal["taken", "known", "empty"]


Take = Callable[[ForeignRun, int], "Future[list[str]]"]
"""Makes the trial of this id of a run. It gives what could not be taken."""


def take_runs(home: Home, runs: Iterable[ForeignRun], experiment: str | None = None) -> Iterator[TakenRun]:
    """Makes a trial of each run that was not imported before, and yields what became of it, in order.

    The trials are in the experiments that their tool names, or all in this one.
    What cannot be taken of a run is added to its losses. Blocks while another import or merge goes on. Raises `OSError`
    for a home that cannot be written.
    """
    with merging(home) as aside:
        yield from take_runs_by(partial(take_here, home, aside), home, runs, experiment)


def take_runs_by(
    take: Take, home: Home, runs: Iterable[ForeignRun], experiment: str | None, max_begun: int = 0
) -> Iterator[TakenRun]:
    """Does the same as `take_runs`, for a caller that is `merging`.

    While a run is taken elsewhere, up to `max_begun` may follow it. Trials have their ids in the order of the runs.
    """
    known = set(_imported_keys(home))
    begun: deque[tuple[TakenRun, Future[list[str]]]] = deque()
    for run in runs:
        run.experiment = experiment or run.experiment
        if run.key in known:
            begun.append((TakenRun(run, None, "known"), _done(run.losses)))
        elif _is_empty(run):
            begun.append((TakenRun(run, None, "empty"), _done(run.losses)))
        else:
            trial_id = home.create_trial().trial_id
            begun.append((TakenRun(run, trial_id, "taken"), take(run, trial_id)))
        known.add(run.key)
        while begun and (begun[0][1].done() or len(begun) > max_begun):
            yield _ended(*begun.popleft())
    yield from starmap(_ended, begun)


def _ended(taken: TakenRun, losses: Future[list[str]]) -> TakenRun:
    taken.run.losses = losses.result()
    return taken


def _done(losses: list[str]) -> Future[list[str]]:
    future: Future[list[str]] = Future()
    future.set_result(losses)
    return future


def _imported_keys(home: Home) -> Iterator[str]:
    for trial_id in home.trial_ids():
        with contextlib.suppress(CoreSDKError):  # damaged, or deleted meanwhile
            if key := home.folder(trial_id).read_record().imported_from:
                yield key


def _is_empty(run: ForeignRun) -> bool:
    """Returns whether a run holds nothing. Its first row is read, and put back."""
    first, run.rows = _peeked(run.rows)
    return first is None and not run.hparams and not run.metadata


def _peeked(rows: Iterable[Row]) -> tuple[Row | None, Iterable[Row]]:
    rows = iter(rows)
    first = next(rows, None)
    return first, rows if first is None else chain([first], rows)


def take_here(home: Home, aside: Path, run: ForeignRun, trial_id: int) -> Future[list[str]]:
    """Takes a run in this process. Blocks until that is done."""
    take_run(home, aside, run, trial_id)
    return _done(run.losses)


def take_run(home: Home, aside: Path, run: ForeignRun, trial_id: int) -> None:
    made, here = TrialFolder(aside, trial_id), home.folder(trial_id)
    made.path.mkdir(parents=True, mode=0o700)
    first, rows = _peeked(run.rows)
    began = _first_time(run.created, first[0] if first else None, time.time())
    start = AttemptStarted(
        time=began,
        format=FORMAT,
        trial_id=trial_id,
        attempt=1,
        host=run.host,
        pid=0,
        sdk_version=__version__,
        home=home.owner(),
    )
    _write_journals(made, start, run, iter(rows))
    made.write_record(_record(home, run, trial_id, began))
    fsync_tree(made.path)
    made.path.rename(here.path)
    share_as_parent(here.path)
    fsync_directory(here.path.parent)


def _record(home: Home, run: ForeignRun, trial_id: int, began: float) -> TrialRecord:
    experiment = home.find_or_create_experiment(_checked_name(run, "experiment", run.experiment) or "imported")
    labels = [label for each in run.labels if (label := _checked_name(run, "label", each))]
    if labels:
        experiment.add_labels(labels)
    seed = run.hparams.get("seed")
    return TrialRecord(
        trial_id=trial_id,
        experiment_id=experiment.experiment_id,
        created=began,
        seed=seed if type(seed) is int and 0 <= seed <= MAX_SEED else 0,
        hparams=_json_values(run, "hyperparameter", run.hparams),
        labels=labels,
        name=_checked_name(run, "name", run.name),
        notes=run.notes.encode(errors="replace").decode(),
        is_defined=True,
        is_named=True,
        imported_from=run.key,
    )


def _write_journals(made: TrialFolder, start: AttemptStarted, run: ForeignRun, rows: Iterator[Row]) -> None:
    """Writes the journal of each attempt: a restart ends one, and begins the next at its step."""
    journal = _Journal(made, run, start.time)
    restart: list[Row] = []
    while True:
        with made.journal_path(start.attempt).open("wb") as file:
            file.write(encode_line(start))
            journal.write_rows(file, _until_restart(rows, restart))
            if not restart:
                journal.write_end(file)
                return
            file.write(encode_line(Ended(time=journal.last, outcome="paused")))
        at, step, _ = restart.pop()
        began, resumed_steps = _first_time(at, journal.last), min(max(step, 0), MAX_INT) - 1
        start = structs.replace(start, time=began, attempt=start.attempt + 1, resumed_steps=resumed_steps)


def _until_restart(rows: Iterator[Row], restart: list[Row]) -> Iterator[Row]:
    for row in rows:
        if row[2] is RESTART:
            restart.append(row)
            return
        yield row


class _Journal:
    """Writes rows into the journals of a run's attempts, one after the other."""

    def __init__(self, made: TrialFolder, run: ForeignRun, began: float) -> None:
        self.last = began
        """The time of the last row."""
        self._made = made
        self._run = run
        self._places = _Places()
        self._num_left_out = 0

    def write_rows(self, file: BinaryIO, rows: Iterator[Row]) -> None:
        while some := list(islice(rows, _NUM_ROWS_AT_ONCE)):
            reports: list[Report] = []
            for at, step, values in some:
                if 0 <= step < MAX_INT and -_MAX_TIME < at < _MAX_TIME:
                    self.last = at
                    if (report := _report_of_number(self._places, at, step, values)) is not None:
                        reports.append(report)
                    else:
                        reports += _reports(self._made, self._run, self._places, at, step, values)
                else:
                    self._num_left_out += 1
            file.write(encode_lines(reports))

    def write_end(self, file: BinaryIO) -> None:
        run = self._run
        if run.metadata:
            metadata = _json_values(run, "metadata", run.metadata)
            file.write(encode_line(MetadataSet(time=self.last, metadata=metadata)))
        file.write(encode_line(Ended(time=_first_time(run.ended, self.last), outcome=run.outcome, error=run.error)))
        if self._num_left_out:
            run.losses.append(
                f"{self._num_left_out} rows were left out, since their step is below 0, or they have no time"
            )


class _Places(dict[str, tuple[str, str]]):
    """The group and the name there of each metric, by the name that its tool has for it.

    If two metrics would be the same one, the later one is kept in the group "other", with its whole name, and with a
    mark if that is taken, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._taken: set[tuple[str, str]] = set()

    def __missing__(self, given: str) -> tuple[str, str]:
        place = split_metric_name(given)
        if not all(place):
            place = "training", given or "metric"
        if place in self._taken:
            place = "other", given or "metric"
        while place in self._taken:
            place = "other", f"{place[1]}*"
        self[given] = place
        self._taken.add(place)
        return place


def _report_of_number(places: _Places, at: float, step: int, values: Mapping[str, Any]) -> Report | None:
    """Returns what `_reports` yields of a row with one finite number, as most rows are; else None."""
    if len(values) == 1:
        ((given, value),) = values.items()
        if type(value) is float and isfinite(value):
            group, name = places[given]
            return Report(at, group, step, {name: value})
    return None


def _reports(
    made: TrialFolder, run: ForeignRun, places: _Places, at: float, step: int, values: Mapping[str, Any]
) -> Iterator[Report]:
    """Yields a report for each group of a row. The groups of training have only numbers and media."""
    numbers: dict[str, dict[str, int | float | str]] = {}
    others: dict[str, dict[str, Any]] = {}
    for given, value in values.items():
        group, name = places[given]
        if type(value) is float:
            numbers.setdefault(group, {})[name] = value if isfinite(value) else number_to_json(value)
        elif isinstance(value, int):
            is_kept = -MAX_INT <= value < MAX_INT
            numbers.setdefault(group, {})[name] = int(value) if is_kept else number_to_json(_nearest_float(value))
        elif value is None:
            pass
        elif group in ("training", "validation") and not _has_media(value):
            others.setdefault("text", {})[given] = value
        else:
            others.setdefault(group, {})[name] = value
    for group, metrics in numbers.items():
        beside = others.pop(group, None)
        yield Report(at, group, step, metrics, None, None if beside is None else _kept(made, run, beside))
    for group, beside in others.items():
        if kept := _kept(made, run, beside):
            yield Report(at, group, step, {}, None, kept)


def _nearest_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def _has_media(value: Any) -> bool:
    return isinstance(value, Media) or (isinstance(value, list) and any(isinstance(item, Media) for item in value))


def _kept(made: TrialFolder, run: ForeignRun, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns values that are not numbers as a report holds them, and writes the files of media."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        media: list[tuple[Media, dict[str, Any]]] = []
        try:
            kept[name] = to_json(value, name, media)
        except (TypeError, ValueError) as error:
            _lose(run, f"a value of {name!r}: {error}")
        for medium, _ in media:
            path = made.media_path / medium.file.name
            if not path.exists():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                write_atomically(path, medium.content, is_durable=False)
    return kept or None


def _checked_name(run: ForeignRun, what: str, text: str) -> str:
    try:
        return check_name(f"the {what}", text) if text else ""
    except InvalidNameError as error:
        _lose(run, str(error))
        return ""


def _json_values(run: ForeignRun, what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in values.items():
        try:
            kept |= to_json_or_text({name: value}, what)[0]
        except (TypeError, ValueError) as error:
            _lose(run, str(error))
    return kept


def _lose(run: ForeignRun, loss: str) -> None:
    if loss not in run.losses:
        run.losses.append(loss)


def _first_time(*times: float | None) -> float:
    """Returns the first one that a record can have."""
    return next((at for at in times if at is not None and -_MAX_TIME < at < _MAX_TIME), 0.0)
