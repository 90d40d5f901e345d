"""What a training records about its time, for `core-sdk trial time`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

import pytest
from torch.utils.data import DataLoader, Dataset

from core_sdk import core, loop
from core_sdk._ground.data.waits import DataWait
from core_sdk._ground.records import CheckpointStored, PhaseEnded, Record, Report, TrialRecord
from core_sdk._home import Home
from core_sdk._home.attempts.run_info import started_info, with_trial
from core_sdk._home.index import Index
from core_sdk._home.journal import read_records
from core_sdk._machine.slots import Slots

_R = TypeVar("_R", bound=Record)


@pytest.fixture
def context(home: Home) -> Iterator[core.Context]:
    DataWait.of_process.take()
    with core.init(name="times") as context:
        yield context


def recorded(home: Home, kind: type[_R]) -> list[_R]:
    return [record for record in read_records(home.trial(1).journal_path(1)) if isinstance(record, kind)]


def test_a_save_tells_for_how_long_it_has_held_the_training_up(home: Home, context: core.Context) -> None:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
        (path / "weights").write_bytes(b"1")
        time.sleep(0.05)

    (saved,) = recorded(home, CheckpointStored)
    assert saved.saving_s is not None and 0.05 <= saved.saving_s < 5
    assert saved.behind_s is None


def test_a_save_in_the_background_tells_how_far_the_training_has_gone_on(home: Home, context: core.Context) -> None:
    begun = time.monotonic()
    with context.checkpoint.store_path({"steps_completed": 1}, wait=False) as (path, _):
        (path / "weights").write_bytes(b"1")
        time.sleep(0.05)
    context.checkpoint.wait()
    lasted = time.monotonic() - begun

    (saved,) = recorded(home, CheckpointStored)
    assert saved.saving_s is not None and saved.behind_s is not None
    assert saved.saving_s >= 0.05
    assert saved.saving_s + saved.behind_s <= lasted + 0.002


def test_a_script_says_what_is_a_validation(home: Home, context: core.Context) -> None:
    """It counts also if it fails; any other name is refused."""
    with pytest.raises(KeyError), context.profiler.phase("validation"):
        time.sleep(0.05)
        raise KeyError
    with pytest.raises(ValueError, match="'validation'"), context.profiler.phase("lunch"):
        pass

    (phase,) = recorded(home, PhaseEnded)
    assert phase.phase == "validation" and 0.05 <= phase.seconds < 5


class Slow(Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        time.sleep(0.02)
        return index


def test_the_next_report_tells_the_wait_for_data(home: Home, context: core.Context) -> None:
    """It is the wait of the batches since the report before; one without a wait tells none."""
    batches = iter(loop.resumable(DataLoader(Slow(), batch_size=1)))
    for step in (1, 2):
        next(batches)
        next(batches)
        context.train.report_training_metrics(2 * step, {"loss": 0.5})
    context.train.report_training_metrics(5, {"loss": 0.5})

    *waited, last = (report.loading_s for report in recorded(home, Report))
    assert all(each is not None and 0.04 <= each < 5 for each in waited)
    assert last is None
    with Index(home) as index:
        index.refresh()
        assert index.times()[0].time.loading == sum(round(1000 * (each or 0)) for each in waited)
        assert [row.metrics for row in index.reports(1)] == [{"loss": 0.5}] * 3


def test_an_attempt_knows_since_when_it_has_waited() -> None:
    """The attempt that a launcher begins next in the same place has not waited."""
    trial = TrialRecord(trial_id=1, experiment_id=1, created=100.0, seed=0)

    info = started_info(trial, 1, None, 0, {}, Slots((0,), asked=90.0), launched=105.0)

    assert (info.asked, info.launched) == (90.0, 105.0)
    again = with_trial(info, trial, 2, None, 0)
    assert (again.asked, again.launched) == (None, None)
