"""Tries made of literals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from core_sdk._ground.records import CodeRecord, SearcherMetric
from core_sdk._home.finding.facts import Facts, facts
from core_sdk._home.finding.tries import Tries, tries_of
from core_sdk._home.rows import Figures, TrialRow

ACCURACY = SearcherMetric(name="accuracy", smaller_is_better=False)


def trials_of_try(first_id: int, values: Sequence[float | None], **fields: Any) -> list[Facts]:
    """Returns the trials of a try, one for each value: completed, or failed where that is None."""
    found = []
    for index, value in enumerate(values):
        given: dict[str, Any] = {
            "trial_id": first_id + index, "experiment_id": 1, "experiment_name": "digits", "labels": (), "reason": "",
            "state": "ERROR" if value is None else "COMPLETED", "created": 0.0, "ended": 1.0, "num_attempts": 1,
            "steps_completed": 1, "seed": index, "hparams": {}, "latest_checkpoint": None, "continued_from": None,
            "num_dropped": 0, "num_bad_lines": 0, "environment": None, "ranks": (), "try_id": first_id, "author": "ann",
            "code": CodeRecord(sha256=f"{first_id:064x}"),
        }  # fmt: skip
        figures = {} if value is None else {"validation": {"accuracy": Figures(value, *_extremes(value))}}
        found.append(facts(TrialRow(**given | fields), figures))
    return found


def study(*tries: list[Facts]) -> Tries:
    return tries_of([one for each in tries for one in each], ACCURACY)


def _extremes(value: float) -> tuple[float | None, float | None]:
    return (value, value) if math.isfinite(value) else (None, None)
