"""Trials side by side: what is asked of each trial, of several at once."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_sdk.server.records import Records
from core_sdk.server.route import Id, Query
from core_sdk.server.routes.metrics import MetricsAnswer, MetricsQuery, metrics
from core_sdk.server.routes.trials import TrialAnswer, trial

TrialIds = Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=100)]


class ComparisonQuery(Query, frozen=True):
    trials: TrialIds


class ComparedMetricsQuery(MetricsQuery, frozen=True, kw_only=True):
    trials: TrialIds


class ComparisonAnswer(msgspec.Struct, frozen=True):
    trials: list[TrialAnswer]
    """The answers in the order of the question."""


class ComparedMetricsAnswer(msgspec.Struct, frozen=True):
    trials: list[MetricsAnswer]
    """The answers in the order of the question."""


def comparison(records: Records, query: ComparisonQuery) -> ComparisonAnswer:
    """Returns the records of several trials."""
    return ComparisonAnswer([trial(records, trial_id) for trial_id in query.trials])


def compared_metrics(records: Records, query: ComparedMetricsQuery) -> ComparedMetricsAnswer:
    """Returns the curves of several trials."""
    return ComparedMetricsAnswer([metrics(records, trial_id, query) for trial_id in query.trials])
