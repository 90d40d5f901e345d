"""When a storage will be full."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from home.journals import append, lines, new_trial, started

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.files import file_url
from core_sdk._ground.records import CheckpointStored, ProgressReported, Record
from core_sdk._home import Home, TrialFolder
from core_sdk._home.finding.storage_forecast import (
    Saver,
    StorageForecast,
    first_that_does_not_fit,
    fitting_interval,
    read_storage_forecast,
)
from core_sdk._home.index import Index

GIB = 1 << 30


def test_the_first_checkpoint_without_room_is_named() -> None:
    saver = Saver(saved=0, interval_s=10, size_bytes=4)

    assert first_that_does_not_fit(12, [saver], until=None) == 40
    assert first_that_does_not_fit(11, [saver], until=None) == 30
    assert first_that_does_not_fit(12, [saver], until=39) is None


def test_all_trainings_fill_the_storage_until_they_end() -> None:
    own, other = Saver(0, 10, 4), Saver(5, 10, 3, ends=30)

    assert first_that_does_not_fit(14, [own, other], until=None) == 30
    assert first_that_does_not_fit(100, [Saver(0, 10, 4, ends=30), other], until=None) is None


def test_a_storage_with_room_for_very_many_is_not_spoken_of() -> None:
    assert first_that_does_not_fit(1 << 60, [Saver(0, 1, 1)], until=None) is None


def test_the_interval_with_which_all_fit() -> None:
    """100 s are left: 5 checkpoints fit, or 3 beside another training that stores two of the same size."""
    own = Saver(saved=0, interval_s=10, size_bytes=2, ends=100)

    assert fitting_interval(10, own, [], now=1) == 20
    assert fitting_interval(10, own, [Saver(0, 50, 2, ends=100)], now=1) == pytest.approx(100 / 3)
    assert fitting_interval(1, own, [], now=1) is None
    assert fitting_interval(10, Saver(0, 10, 2), [], now=1) is None


def write_running(home: Home, storage: Path, progress: float | None = None) -> tuple[TrialFolder, AliveLock]:
    """Writes a trial that runs, and has saved 1 GiB every 10 s, the last time just now."""
    folder = new_trial(home)
    now = time.time()
    begun = started(folder)
    begun.time = now - 30
    record = folder.read_record()
    record.created = now - 30
    folder.write_record(record)
    saves: list[Record] = [
        CheckpointStored(
            time=now - 10 * age,
            storage_id=f"{folder.trial_id}-{age}",
            storage=file_url(storage),
            steps_completed=3 - age,
            metadata={},
            resources={"weights": GIB},
        )
        for age in (2, 1, 0)
    ]
    told: list[Record] = [] if progress is None else [ProgressReported(time=now, progress=progress)]
    append(folder, 1, lines(begun, *saves, *told))
    return folder, AliveLock(folder.alive_path(1))


def forecast(home: Home, trial_id: int) -> StorageForecast | None:
    with Index(home) as index:
        index.refresh()
        return read_storage_forecast(index, trial_id)


@pytest.fixture
def five_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which five GiB are free."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * GIB))


@pytest.mark.usefixtures("five_gib")
def test_a_training_that_will_fill_the_disk_before_it_ends(home: Home, tmp_path: Path) -> None:
    """A fifth of it took 30 s, so that 12 checkpoints are to come, and 5 fit."""
    folder, lock = write_running(home, tmp_path, progress=0.2)

    found = forecast(home, folder.trial_id)
    lock.release()

    assert found is not None and found.ends is not None and found.full is not None
    assert (found.size_bytes, found.num_others) == (GIB, 0)
    assert found.interval_s == pytest.approx(10)
    assert found.ends - found.full == pytest.approx(60, abs=2)
    assert found.fitting_interval_s == pytest.approx(24, abs=1)


@pytest.mark.usefixtures("five_gib")
def test_a_training_that_fits(home: Home, tmp_path: Path) -> None:
    folder, lock = write_running(home, tmp_path, progress=0.5)

    found = forecast(home, folder.trial_id)
    lock.release()

    assert found is not None and found.full is None and found.fitting_interval_s is None


@pytest.mark.usefixtures("five_gib")
def test_trials_beside_it_fill_the_disk_too(home: Home, tmp_path: Path) -> None:
    folder, lock = write_running(home, tmp_path)
    _, other_lock = write_running(home, tmp_path)

    found = forecast(home, folder.trial_id)
    lock.release()
    other_lock.release()

    assert found is not None and found.full is not None
    assert found.num_others == 1
    assert found.full - time.time() == pytest.approx(30, abs=2)


def test_nothing_is_foretold_of_a_trial_that_has_ended_or_saves_into_a_bucket(home: Home, tmp_path: Path) -> None:
    ended, lock = write_running(home, tmp_path)
    lock.release()
    elsewhere, other_lock = write_running(home, tmp_path / "missing")

    assert forecast(home, ended.trial_id) is None
    assert forecast(home, elsewhere.trial_id) is None
    other_lock.release()
