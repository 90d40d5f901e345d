"""Searches hyperparameters for a creator trainer."""

from __future__ import annotations

import inspect
import json
import pickle
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_sdk import client
from core_sdk._execution.workers import encode_request, named_as
from core_sdk.sgd._metrics import Metrics
from core_sdk.sgd._trainer import PyTorchTrainer
from core_sdk.sgd._trial import init_alone

_CALL_FILE = "trial.pickle"
_SCRIPT = f"""
import core_sdk.sgd._tuning
core_sdk.sgd._tuning.run_trial({_CALL_FILE!r})
"""


def tune(
    *,
    hyperparameters: Mapping[str, Any],
    searcher: Mapping[str, Any],
    num_passes: int,
    max_retries: int = 0,
    name: str = "sgd",
    experiment_config: Mapping[str, Any] | None = None,
    **trainer_arguments: Any,
) -> client.Experiment:
    """Submits an experiment that searches, and returns it at once. Its `wait()` blocks until its end.

    `hyperparameters` and `searcher` are the values of these keys in the configuration. Each trial is a `PyTorchTrainer`
    with `trainer_arguments`, whose `config` has the hyperparameters that the search has chosen. It trains and validates
    `num_passes` times, with a checkpoint each time, unless the search stops it after an earlier pass. The searcher's
    metric is one that `validate()` returns, and "epoch" is the length that a trial has trained. A trial takes
    `num_replicas` slots of the machine; with `engine="ray"` it takes none, and Ray places its workers.
    `experiment_config` has further keys of the configuration.

    Raises `NotPicklableError`, `InvalidConfigError`, and the errors of `client.create_experiment()`.
    """
    _check_arguments(trainer_arguments)
    if num_passes < 1:
        raise ValueError(f"num_passes is {num_passes}; it must be at least 1")
    more = dict(experiment_config or {})
    num_slots = 0 if trainer_arguments.get("engine") == "ray" else trainer_arguments.get("num_replicas", 1)
    config = {
        "name": name,
        "entrypoint": [sys.executable, "trial.py"],
        "hyperparameters": dict(hyperparameters),
        "searcher": dict(searcher),
        **more,
        "resources": {"slots_per_trial": num_slots, **more.get("resources", {})},
    }
    with named_as("what the trainers are given", trainer_arguments):
        call = encode_request(_train, (trainer_arguments, num_passes, max_retries, searcher.get("metric")), {})
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "trial.py").write_text(_SCRIPT)
        # The trials import the program's modules from the directories of the program's sys.path.
        Path(directory, _CALL_FILE).write_bytes(json.dumps(sys.path).encode() + b"\n" + call)
        return client.create_experiment(config, directory)


def run_trial(file: str) -> None:
    """Runs one trial, in the trial's script."""
    path, _, call = Path(file).read_bytes().partition(b"\n")
    sys.path += [place for place in json.loads(path) if place not in sys.path]
    function, args, kwargs = pickle.loads(call)  # noqa: S301 - written by the program that has submitted the experiment
    function(*args, **kwargs)


def _train(arguments: Mapping[str, Any], num_passes: int, max_retries: int, metric: str) -> None:
    with (
        init_alone(arguments.get("config") or {}, max_length={"epochs": num_passes}) as context,
        PyTorchTrainer(**arguments, context=context) as trainer,
    ):
        for operation in context.searcher.operations():
            metrics: Metrics = {}
            while trainer.epoch < operation.length:
                if context.preempt.should_preempt():
                    return
                trainer.train(max_retries)
                metrics = trainer.validate()
                trainer.save(wait=False)
                operation.report_progress(trainer.epoch)
            operation.report_completed(_searched(metrics or trainer.validate(), metric))


def _searched(metrics: Metrics, metric: str) -> float:
    if metric not in metrics:
        raise ValueError(f"validate() has no {metric!r}, which the searcher wants; it has {', '.join(metrics)}")
    return float(metrics[metric])


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raises `TypeError` for arguments that would fail in each trial."""
    if "context" in arguments:
        raise TypeError("tune() takes no context: each trial has its own")
    if "seed" in arguments:
        raise TypeError('tune() takes no seed: pass experiment_config={"reproducibility": {"experiment_seed": …}}')
    if own := arguments.keys() & {"trial_name", "labels", "notes"}:
        raise TypeError(
            f"tune() takes no {min(own)}: the trials belong to one experiment; pass experiment_config={{…}}"
        )
    inspect.signature(PyTorchTrainer).bind(**arguments)
    if not isinstance(arguments.get("engine"), str | None):
        raise TypeError("engine must be 'local', 'ray' or None, since each trial opens its own")
