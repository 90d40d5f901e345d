"""Trials side by side: what is asked of each trial, of several at once."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core_sdk._interfaces.server.route import Id
from core_sdk._interfaces.server.routes.metrics import MetricsAnswer, MetricsQuery, metrics
from core_sdk._interfaces.server.routes.trials import TrialAnswer, TrialQuery, trial
from core_sdk._interfaces.server.shared_view import SharedView

TrialIds = Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=100)]


class ComparisonQuery(TrialQuery, frozen=True, kw_only=True):
    trials: TrialIds


class ComparedMetricsQuery(MetricsQuery, frozen=True, kw_only=True):
    trials: TrialIds


class ComparisonAnswer(msgspec.Struct, frozen=True):
    trials: list[TrialAnswer]
    """The answers in the order of the question."""


class ComparedMetricsAnswer(msgspec.Struct, frozen=True):
    trials: list[MetricsAnswer]
    """The answers in the order of the question."""


def comparison(shared: SharedView, query: ComparisonQuery) -> ComparisonAnswer:
    """Returns the records of several trials."""
    return ComparisonAnswer([trial(shared, trial_id, query) for trial_id in query.trials])


def compared_metrics(shared: SharedView, query: ComparedMetricsQuery) -> ComparedMetricsAnswer:
    """Returns the curves of several trials."""
    return ComparedMetricsAnswer([metrics(shared, trial_id, query) for trial_id in query.trials])
