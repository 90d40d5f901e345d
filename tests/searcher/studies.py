"""An Optuna study as the method of a search."""

from __future__ import annotations

import optuna

from core_sdk.search.optuna import OptunaSearch


def study() -> OptunaSearch:
    """Returns a search of four trials, one after another, so that their speed does not change the sampler's calls."""
    return OptunaSearch(
        {"x": {"type": "double", "minval": 0, "maxval": 1}},
        max_trials=4,
        max_concurrent_trials=1,
        max_length=2,
        period=1,
        sampler=optuna.samplers.TPESampler(seed=3, n_startup_trials=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=1),
    )
