"""Configurations to start from in tests."""

from __future__ import annotations

import pytest

from core_sdk._ground.config import ExperimentConfig, load
from core_sdk.errors import InvalidConfigError

SINGLE = """\
entrypoint: python3 train.py
searcher: {name: single, metric: loss}
reproducibility: {experiment_seed: 7}
"""


def loaded(text: str, *overrides: str) -> ExperimentConfig:
    """Returns the configuration in `text`, which gives no warnings."""
    result = load(text, source="const.yaml", overrides=overrides)
    assert not result.warnings
    return result.config


def warnings_of(text: str) -> list[str]:
    return list(load(text, source="const.yaml").warnings)


def problems_of(text: str, *overrides: str) -> list[str]:
    """Returns all problems of `text`, one line each."""
    with pytest.raises(InvalidConfigError) as caught:
        load(text, source="const.yaml", overrides=overrides)
    return str(caught.value).splitlines()
