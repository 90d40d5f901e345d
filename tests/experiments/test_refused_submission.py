"""Submitting where no master can be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_sdk.experiments.submission import submit
from core_sdk.tracking import Home

CONFIG = "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"


def test_an_experiment_that_no_master_begins_leaves_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is removed, and its number is free again."""
    monkeypatch.chdir(home.root)
    (home.root / "master.log").mkdir()  # keeps a master from being started

    with pytest.raises(OSError, match=r"master\.log"):
        submit(home, CONFIG, source="config.yaml")

    assert [path.name for path in home.experiments.iterdir()] == ["names"]
    assert home.allot_experiment().path == Path(home.experiments / "1")
