"""Finds the best validation of an experiment so far, and its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from core_sdk._ground.environment import Environment
from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home, open_view
from core_sdk._home.finding.best import best_checkpoint
from core_sdk.core import Context

logger = logging.getLogger("core_sdk.runtime")

TIME_METRICS = frozenset({"batches", "epochs"})
"""The metrics that are reported in addition to a trial's own."""


class BestValidation:
    """Compares validations by the searcher's metric; without one, by the only metric, of which smaller is better.

    For the chief only.
    """

    def __init__(self, core_context: Context, config: Mapping[str, Any]) -> None:
        """`config` is the configuration of the experiment, which may name the searcher's metric."""
        self._train = core_context.train
        self._trial = core_context.info.trial
        self._metric = SearcherMetric.configured(config.get("searcher"))
        self._has_warned = False
        self._is_configured = self._metric is not None
        if self._is_configured and core_context.distributed.is_chief:
            self._record()

    def is_best(self, metrics: Mapping[str, Any]) -> bool:
        """Returns whether a validation is better than all reported ones of the experiment.

        It is True if they cannot be compared.

        Raises `ValueError` if the validation lacks the searcher's metric.
        """
        metric = self._compared(metrics)
        if metric is None or metric.writer is not None:
            return True
        value, best = metrics[metric.name], self._train.get_experiment_best_validation()
        return best is None or metric.is_better(value, best)

    def searched(self, metrics: Mapping[str, Any]) -> Any:
        """Returns the value of the metric that the search compares. Raises `ValueError` if that metric is unknown."""
        metric = self._compared(metrics)
        if metric is None:
            raise ValueError("nothing says which metric the search compares: name it in the experiment's configuration")
        return metrics[metric.name]

    def checkpoint(self) -> str | None:
        """Returns the storage id of the trial's intact checkpoint with the best validation, or None."""
        if self._metric is None:
            return None
        with open_view(_home()) as view:
            best = best_checkpoint(view.checkpoints(trial_id=self._trial.trial_id), self._metric)
        return None if best is None else best.storage_id

    def _compared(self, metrics: Mapping[str, Any]) -> SearcherMetric | None:
        if self._metric is not None and self._metric.name not in metrics:
            if not self._is_configured:
                self._metric = None
                return None
            raise ValueError(
                f"the searcher's metric {self._metric.name!r} is not among the validation metrics "
                f"{', '.join(sorted(metrics)) or '(none)'}: return it from the trial's evaluation, or correct the "
                "experiment's configuration"
            )
        names = metrics.keys() - TIME_METRICS
        if self._metric is None and len(names) == 1:
            self._metric = SearcherMetric(name=names.pop())
        elif self._metric is None and names and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "nothing says which of the validation metrics %s decides which validation is the best: each "
                "validation is followed by a checkpoint. Name it with exp_conf={'searcher': {'metric': …}}, or set "
                "checkpoint_policy",
                ", ".join(sorted(names)),
            )
        return self._metric

    def _record(self) -> None:
        """Records the metric of the script's configuration in the experiment."""
        experiment = _home().experiment(self._trial.experiment_id)
        if experiment.read().searcher_metric != self._metric:
            with experiment.edit() as record:
                record.searcher_metric = self._metric


def _home() -> Home:
    return Home.open(Environment.read().home)
