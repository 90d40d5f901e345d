"""The cost of a search before it runs: how many trials it trains, and how far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from core_sdk._ground.config import ExperimentConfig
from core_sdk._ground.config.searchers import CustomSearcher
from core_sdk.search._search import Search
from core_sdk.search.simulation import simulate

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Trained:
    """The trials that end at one length."""

    length: int
    num_trials: int


@dataclass(frozen=True)
class Preview:
    """The costs of a search. A value is None if it needs the length of a training or the speed, and that is unknown."""

    searcher: str
    num_trials: int
    max_running: int
    unit: str
    trained: list[Trained] | None
    num_units: int | None
    """The units that all trials train together."""
    num_units_at_most: int | None
    """The units if each trial trained to the end."""
    hours: float | None
    gpu_hours: float | None


def preview(
    config: ExperimentConfig,
    *,
    units_per_second: float | None = None,
    num_slots: int | None = None,
    length: int | None = None,
) -> Preview:
    """Simulates the search of a configuration. `length` is the length of a training, if only the script knows it.

    Raises `ValueError` for a custom search method, and if a trial needs more slots than there are.
    """
    searcher = config.searcher
    if isinstance(searcher, CustomSearcher):
        raise ValueError("a custom search method is previewed by core_sdk.search.simulation, in Python")
    slots_per_trial = max(config.resources.slots_per_trial, 1)
    num_slots = min(filter(None, (num_slots, config.resources.max_slots)), default=None)
    if num_slots is not None and num_slots < slots_per_trial:
        raise ValueError(f"a trial needs {slots_per_trial} slots, and there are {num_slots}")
    search = Search(searcher, config.hyperparameters, seed=0)
    lengths = search.lengths or ([] if length is None else [length])
    simulation = simulate(search, validations=lengths or [1], num_slots=num_slots and num_slots // slots_per_trial)
    trained = Counter(trial.length for trial in simulation.trials)
    unit = getattr(searcher, "time_metric", None) or getattr(getattr(searcher, "max_length", None), "unit", None)
    hours_per_unit = 1 / units_per_second / _SECONDS_PER_HOUR if units_per_second and lengths else None
    return Preview(
        searcher=str(searcher.__struct_config__.tag),
        num_trials=len(simulation.trials),
        max_running=simulation.max_running,
        unit=unit or "units",
        trained=[Trained(*one) for one in sorted(trained.items())] if lengths else None,
        num_units=simulation.num_units if lengths else None,
        num_units_at_most=len(simulation.trials) * lengths[-1] if lengths else None,
        hours=hours_per_unit and simulation.duration * hours_per_unit,
        gpu_hours=hours_per_unit and simulation.num_units * hours_per_unit * config.resources.slots_per_trial,
    )
