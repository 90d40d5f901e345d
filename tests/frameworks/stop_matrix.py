"""Compares trainings that were stopped and resumed with one that was not, all in this process.

The import of a framework takes longer than many such trainings.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from core_sdk import client, core

# Metrics that differ between any two trainings, or are about one attempt.
_OF_AN_ATTEMPT = ("runtime", "per_second", "train_loss", "total_flos")

Train = Callable[[core.Context, int | None], dict[str, Any]]
"""Trains in the current directory, with a stop after a batch if there is one, and returns what is to be compared."""


def ask_to_stop(context: core.Context) -> None:
    """Asks as a deadline does, which is a stop of this training alone, and waits until it is agreed."""
    context.preempt.ask_to_stop("deadline")
    while not context.preempt.is_stop_agreed:
        time.sleep(0.001)


def compare(name: str, train: Train, stops: Iterable[int | Sequence[int]]) -> None:
    """Raises `AssertionError` for the stops after which a training has other results or reports than undisturbed.

    `name` names the configuration. A sequence of stops is one training, which is resumed and stopped again.
    """
    expected, _ = run(train, f"{name} undisturbed", [])
    differences, num_stopped = [], 0
    for stop in stops:
        series = [stop] if isinstance(stop, int) else [*stop]
        found, num_attempts = run(train, f"{name} stopped after {series}", series)
        differences += [f"{name}, stopped after {series}: {each}" for each in differences_of(expected, found)]
        num_stopped += num_attempts - 1
    assert not differences, "\n".join(differences)
    assert num_stopped, f"{name}: no training was stopped"


def run(train: Train, job_id: str, stops: list[int]) -> tuple[dict[str, Any], int]:
    """Trains as often as it is stopped. Returns the results, with the reports, and the number of attempts."""
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        for stop_at in [*stops, None]:
            with core.init(job_id=job_id, name=job_id) as context:
                trial_id = context.info.trial.trial_id
                results = train(context, stop_at)
            trial = client.get_trial(trial_id)
            if trial.state.name != "PAUSED":
                break
    assert trial.state.name == "COMPLETED", trial.state
    return results | {"reports": _reports(trial)}, context.info.trial.attempt


def _reports(trial: client.Trial) -> dict[str, float]:
    return {
        f"{each.group} {each.steps_completed} {name}": value
        for each in trial.iter_metrics()
        for name, value in each.metrics.items()
        if not name.endswith(_OF_AN_ATTEMPT)
    }


def differences_of(expected: Any, found: Any, place: str = "") -> Iterator[str]:
    """Yields the places at which two values differ, in any bit."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in expected.keys() | found.keys():
            yield from differences_of(expected.get(key), found.get(key), f"{place}/{key}")
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        for index, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences_of(*pair, f"{place}/{index}")
    elif isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        if not torch.equal(expected, found):
            yield f"{place} is {found} instead of {expected}"
    elif expected != found:
        yield f"{place} is {found} instead of {expected}"
