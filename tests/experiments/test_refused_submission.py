"""Submitting where no master can be had."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from core_sdk.errors import HomeNotWritableError
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


def test_a_full_disk_is_told_with_the_home(home: Home, tmp_path: Path) -> None:
    """And leaves nothing of the experiment."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "data.bin").write_bytes(os.urandom(1 << 16))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
    try:
        with pytest.raises(HomeNotWritableError, match=f"cannot write to the home {home.root}: File too large"):
            submit(home, CONFIG, source="config.yaml", model_dir=tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    assert [path.name for path in home.experiments.iterdir()] == ["names"]
