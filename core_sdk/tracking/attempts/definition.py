"""What a script's `init()` says about its trial, and what becomes of the trial's record by it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk.placement import Job, named_job
from core_sdk.records import TrialRecord, check_name, to_json
from core_sdk.tracking.home import Home

logger = logging.getLogger("core_sdk.core")


@dataclass(frozen=True)
class Definition:
    """The arguments of `init()` that describe the trial and its experiment, in JSON's form.

    They count on a trial's first attempt; later attempts keep what was recorded.
    """

    name: str | None = None
    hparams: dict[str, Any] | None = None
    labels: tuple[str, ...] | None = None
    description: str | None = None
    data: dict[str, Any] | None = None
    max_length: int | dict[str, int] | None = None
    job: Job | None = None
    """The training of which this process is one start."""

    @classmethod
    def checked(
        cls,
        *,
        name: str | None,
        hparams: Mapping[str, Any] | None,
        labels: Sequence[str] | None,
        description: str | None,
        data: Mapping[str, Any] | None,
        max_length: int | Mapping[str, int] | None,
        job_id: str | None = None,
    ) -> Definition:
        """Raises `ValueError` or `TypeError` for what cannot be kept."""
        if isinstance(labels, str):
            raise TypeError(f"labels is {labels!r}, a str; it must be a list of labels")
        return cls(
            name=None if name is None else check_name("the experiment's name", name),
            hparams=None if hparams is None else _checked_dict(hparams, "hparams"),
            labels=None if labels is None else tuple(check_name("the label", label) for label in labels),
            description=None if description is None else _checked_text(description, "description"),
            data=None if data is None else _checked_dict(data, "data"),
            max_length=to_json(max_length, "max_length"),
            job=None if job_id is None else named_job(check_name("job_id", job_id)),
        )


def define(record: TrialRecord, definition: Definition) -> None:
    """On a trial's first attempt: writes into `record` what the script says."""
    record.is_defined = True
    record.given_hparams = record.told_hparams
    if definition.hparams is not None:
        if differences := _differences(definition.hparams, record.given_hparams, "given"):
            logger.warning(
                "trial %d: init(hparams=…) contradicts the hyperparameters that were given to the trial (%s). What the "
                "script says is recorded. To train with the given ones, take them from "
                "get_cluster_info().trial.hparams, and pass those to init()",
                record.trial_id,
                differences,
            )
        record.hparams = record.hparams | definition.hparams
    if definition.data is not None:
        record.data = definition.data
    if definition.max_length is not None:
        record.max_length = definition.max_length


def warn_of_change(record: TrialRecord, definition: Definition) -> None:
    """On a later attempt: the trial stays what its first attempt said it is."""
    if differences := _differences(definition.hparams or {}, record.hparams, "recorded"):
        logger.warning(
            "trial %d goes on with other hyperparameters than it began with (%s). What was recorded first stays",
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


def _differences(said: dict[str, Any], other: dict[str, Any], other_name: str) -> str:
    """The hyperparameters of which both speak and that differ; empty if there are none."""
    return ", ".join(
        f"{name}: {value!r} in the script, {other[name]!r} {other_name}"
        for name, value in said.items()
        if name in other and value != other[name]
    )


def _checked_dict(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a dict, not {type(value).__name__}")
    return dict(to_json(value, what))


def _checked_text(value: str, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {type(value).__name__}")
    return str(to_json(value, what))
