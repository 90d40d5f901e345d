"""The configuration of an experiment, whether it was submitted or not."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk._ground.records import SearcherMetric, from_json
from core_sdk._home import Home, open_view


def experiment_config(home: Home, experiment_id: int) -> dict[str, Any]:
    """Returns the configuration of an experiment. The contract is the same as of `Experiment.config`."""
    record = home.experiment(experiment_id).read()
    if record.is_submitted:
        submitted: dict[str, Any] = from_json(home.experiment(experiment_id).read_config())
        return submitted
    config: dict[str, Any] = {
        "name": record.name,
        "description": record.description,
        "labels": list(record.labels),
        "searcher": {"name": "single"} | _searcher(record.searcher_metric),
        "checkpoint_storage": _plain(record.retention),
    }
    if (first := _first_trial(home, experiment_id)) is not None:
        trial = home.trial(first).read_record()
        config["data"] = from_json(trial.data)
        config["hyperparameters"] = {
            name: {"type": "const", "val": value} for name, value in from_json(trial.hparams).items()
        }
        if trial.max_length is not None:
            config["searcher"]["max_length"] = trial.max_length
    return config


def _first_trial(home: Home, experiment_id: int) -> int | None:
    with open_view(home) as view:
        return next(iter(view.trial_ids(experiment_id)), None)


def _searcher(metric: SearcherMetric | None) -> dict[str, Any]:
    if metric is None:
        return {}
    writer = {"writer": metric.writer} if metric.writer else {}
    return {"metric": metric.name, "smaller_is_better": metric.smaller_is_better, **writer}


def _plain(value: msgspec.Struct | None) -> dict[str, Any]:
    return {} if value is None else dict(msgspec.to_builtins(value))
