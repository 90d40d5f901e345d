"""The bounds of an answer about a trial or an experiment with very many labels or hyperparameters: it has the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from core_sdk._home.finding.facts import first_values
from core_sdk._home.rows import ExperimentRow, TrialRow

MOST_LABELS = 1000
MOST_LABELS_IN_LIST = 100
_MOST_VALUES = 1000


def bounded_trial(row: TrialRow) -> TrialRow:
    """Returns the trial with its first labels, and with the first values of its hyperparameters and metadata."""
    metadata = None if row.metadata is None else bounded_values(row.metadata)
    return replace(row, labels=row.labels[:MOST_LABELS], hparams=bounded_values(row.hparams), metadata=metadata)


def bounded_experiment(row: ExperimentRow, most_labels: int) -> ExperimentRow:
    return replace(row, labels=row.labels[:most_labels])


def bounded_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the first 1,000 values of nested mappings."""
    return first_values(values, _MOST_VALUES)[0]


def num_values(values: Mapping[str, Any]) -> int:
    """Returns the number of values in nested mappings."""
    return first_values(values, 0)[1]


def differing_values(of_trials: Sequence[Mapping[str, Any]], most: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the values in which the trials differ, of the first `most` names, and the number of such names."""
    counts = Counter((name, repr(value)) for values in of_trials for name, value in values.items())
    differing = list(dict.fromkeys(name for (name, _), count in counts.items() if count < len(of_trials)))
    shown = differing[:most]
    return [{name: values[name] for name in shown if name in values} for values in of_trials], len(differing)
