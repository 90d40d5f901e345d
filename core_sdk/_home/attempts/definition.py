"""Checks what a script's `init()` says about its trial, and records it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from core_sdk._ground.placement import named_job
from core_sdk._ground.records import (
    SearcherMetric,
    TrialDescription,
    TrialRecord,
    check_name,
    check_seed,
    check_steps,
    check_text,
    differing_values,
    merged_groups,
    to_json,
    to_json_or_text,
)
from core_sdk._home.folders import Home, TrialFolder
from core_sdk.errors import CoreSDKError

logger = logging.getLogger("core_sdk.core")

# Every reader of the trial reads all of them.
_MOST_VALUES = 20_000
_MOST_NAMED = 20


@dataclass
class Definition:
    """The arguments of `init()` that describe the trial and its experiment, checked and in JSON's form.

    Only a trial's first attempt records them. Raises `ValueError` or `TypeError` for values that cannot be recorded.
    """

    name: str | None = None
    hparams: Any = None
    labels: Sequence[str] | None = None
    trial_name: str | None = None
    notes: str | None = None
    description: str | None = None
    data: Mapping[str, Any] | None = None
    max_length: int | Mapping[str, int] | None = None
    seed: int | None = None
    metric: str | None = None
    """The metric that says what is best."""
    larger_is_better: bool | None = None
    job_id: str | None = None
    steps_completed: int | None = None
    """The step after which the script goes on by files of its own, if the trial has begun before."""

    def __post_init__(self) -> None:
        if isinstance(self.labels, str):
            raise TypeError(f"labels is {self.labels!r}, a str; it must be a list of labels")
        if self.name is not None:
            self.name = check_name("the experiment's name", self.name)
        if self.trial_name is not None:
            self.trial_name = check_name("the trial's name", self.trial_name)
        if self.labels is not None:
            self.labels = [check_name("the label", label) for label in self.labels]
        self.hparams = None if self.hparams is None else recordable_hparams(self.hparams)
        self.notes = _checked(self.notes, "notes", str, "a string")
        self.description = _checked(self.description, "description", str, "a string")
        self.data = _checked(self.data, "data", Mapping, "a dict")
        self.data = None if self.data is None else _bounded(self.data, "data")
        self.max_length = to_json(self.max_length, "max_length")
        self.seed = None if self.seed is None else check_seed(self.seed)
        self.steps_completed = None if self.steps_completed is None else check_steps(self.steps_completed)
        if self.metric is not None:
            check_name("metric", self.metric)
        elif self.larger_is_better is not None:
            raise ValueError("larger_is_better says how to read a metric: give metric=…, too")
        self.job = None if self.job_id is None else named_job(check_name("job_id", self.job_id))
        """The job that this process executes. Each start of the job goes on with the same trial."""


def checked_description(described: TrialDescription) -> TrialDescription:
    """Returns what a command line says about a new trial.

    Raises `InvalidNameError`, or `TypeError` for texts that are not valid Unicode.
    """
    for name, value in msgspec.structs.asdict(described).items():
        if name == "name" and value:
            check_name("the trial's name", value)
        elif isinstance(value, str):
            check_text(f"the {name}", value)
    for label in described.labels:
        check_name("the label", label)
    return described


def record_hparams(folder: TrialFolder, hparams: object, *, is_update: bool = False) -> None:
    """Records the hyperparameters of a trial that has none yet, or has others. If that fails, a warning says so."""
    recordable = recordable_hparams(hparams)
    try:
        record = folder.read_record()
        if is_update or not record.hparams:
            record.hparams = merged_groups({**record.hparams, **recordable}, record.given_hparams)
            folder.write_record(record)
    except (CoreSDKError, OSError) as error:
        logger.warning("the hyperparameters of trial %d could not be recorded: %s", folder.trial_id, error)


def recordable_hparams(hparams: object) -> dict[str, Any]:
    """Returns the hyperparameters in JSON's form. Warns of values that become text.

    These are values that JSON cannot keep, and those that are too long. Raises `ValueError` for too many names.

    Takes a mapping, and the objects that hold fields by name (see `to_json_or_text`). Raises `TypeError` for others.
    """
    recordable = _bounded(hparams, "hparams")
    _check_kind(recordable, "hparams", dict, "a dict")
    return cast(dict[str, Any], recordable)


def _bounded(value: object, what: str) -> Any:
    recordable, replaced = to_json_or_text(value, what, _MOST_VALUES)
    if replaced:
        logger.warning(
            "a text is recorded in place of what JSON cannot keep, or what is too long for lists and charts: %s",
            "; ".join(replaced[:_MOST_NAMED]) + ("; …" if len(replaced) > _MOST_NAMED else ""),
        )
    return recordable


def _checked(value: object, what: str, kind: type, kind_name: str) -> Any:
    _check_kind(value, what, kind, kind_name)
    return to_json(value, what)


def _check_kind(value: object, what: str, kind: type, kind_name: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{what} must be {kind_name}, not {type(value).__name__}")


def define(record: TrialRecord, definition: Definition) -> None:
    """Writes the definition into the record of a trial, on its first attempt.

    In a trial of a search, the script can add hyperparameters, but cannot change those that the searcher has chosen.
    """
    record.is_defined = True
    record.given_hparams = record.told_hparams
    if definition.hparams is not None:
        if record.request_id:
            _warn_of_search(record, definition)
            record.hparams = merged_groups(definition.hparams, record.given_hparams)
        else:
            _warn_of_command_line(record, definition)
            record.hparams = merged_groups(record.hparams, definition.hparams)
    # A name, notes and a metric of the command line have precedence.
    record.name = record.name or definition.trial_name or ""
    record.notes = record.notes or definition.notes or ""
    if definition.metric is not None and not record.request_id:  # a search has a metric of its own
        metric = SearcherMetric(name=definition.metric, smaller_is_better=not definition.larger_is_better)
        record.best_by = record.best_by or metric.best_name
    record.labels = list(dict.fromkeys([*record.labels, *(definition.labels or ())]))
    if definition.data is not None:
        record.data = dict(definition.data)
    if definition.max_length is not None:
        record.max_length = to_json(definition.max_length, "max_length")
    if record.is_seed_given:
        _warn_of_seed(record, definition)
    elif definition.seed is not None:
        record.seed = definition.seed


def warn_of_change(record: TrialRecord, definition: Definition) -> None:
    """Warns if a later attempt gives another seed, or other hyperparameters than the search or the first attempt.

    Changes no record.
    """
    _warn_of_seed(record, definition)
    if record.request_id:
        _warn_of_search(record, definition)
    elif differences := _differences(definition.hparams, record.hparams, "recorded"):
        logger.warning(
            "trial %d goes on with other hyperparameters than it began with (%s). What was recorded first stays",
            record.trial_id,
            differences,
        )


def _warn_of_seed(record: TrialRecord, definition: Definition) -> None:
    if definition.seed not in (None, record.seed):
        logger.warning(
            "trial %d keeps the seed %d, %s: the script's seed=%d is not used. A new trial can have another seed",
            record.trial_id,
            record.seed,
            "which its search or the command line has chosen" if record.is_seed_given else "with which it began",
            definition.seed,
        )


def _warn_of_search(record: TrialRecord, definition: Definition) -> None:
    if differences := _differences(definition.hparams, record.given_hparams, "chosen by the search"):
        logger.warning(
            "trial %d: init(hparams=…) has other values than the search has chosen (%s). The search's are "
            "recorded: train with them, they are in get_cluster_info().trial.hparams",
            record.trial_id,
            differences,
        )


def _warn_of_command_line(record: TrialRecord, definition: Definition) -> None:
    if differences := _differences(definition.hparams, record.given_hparams, "given"):
        logger.warning(
            "trial %d: init(hparams=…) contradicts the hyperparameters that were given to the trial (%s). What the "
            "script says is recorded. To train with the given ones, take them from "
            "get_cluster_info().trial.hparams, and pass those to init()",
            record.trial_id,
            differences,
        )


def describe_experiment(home: Home, experiment_id: int, definition: Definition) -> None:
    if definition.labels is None and definition.description is None:
        return
    with home.experiment(experiment_id).edit() as record:
        record.labels = list(dict.fromkeys([*record.labels, *(definition.labels or ())]))
        if definition.description is not None:
            record.description = definition.description


def _differences(said: Mapping[str, Any] | None, other: Mapping[str, Any], other_name: str) -> str:
    """Returns a list, as text, of the hyperparameters that both have and that differ; empty if there are none."""
    return ", ".join(
        f"{name}: {value!r} in the script, {other_value!r} {other_name}"
        for name, value, other_value in differing_values(said or {}, other)
    )
