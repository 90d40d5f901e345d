"""Threads of a script may share its Context: whatever they record is recorded, or the call raises."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pytest
from promises import promise

from core_sdk import core
from core_sdk._ground.records import (
    Alert,
    CheckpointDeleted,
    CheckpointStored,
    CheckpointUsed,
    Ended,
    MetadataSet,
    ProgressReported,
    Record,
    Report,
    StatusSet,
)
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk.media import Text

T = TypeVar("T", bound=Record)

NUM_THREADS = 8
NUM_ROUNDS = 5


@pytest.fixture(autouse=True)
def busy_interpreter() -> Iterator[None]:
    """Lets the interpreter change threads as often as it can."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.fixture
def context(home: Home) -> Iterator[core.Context]:
    with core.init(name="threads") as context:
        yield context


def in_threads(call: Callable[[int], object], num_rounds: int = NUM_ROUNDS) -> list[object]:
    """Calls it with a number of its own in each of several threads, at once, several times; returns all results."""
    results: list[object] = []
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for begin in range(0, num_rounds * NUM_THREADS, NUM_THREADS):
            barrier = threading.Barrier(NUM_THREADS)

            def run(number: int, barrier: threading.Barrier = barrier) -> object:
                barrier.wait()
                return call(number)

            results += pool.map(run, range(begin, begin + NUM_THREADS))
    return results


def recorded(home: Home, kind: type[T], trial_id: int = 1) -> list[T]:
    journal = home.runs / str(trial_id) / "1.journal"
    return [record for record in read_records(journal) if isinstance(record, kind)]


RECORDING: dict[str, tuple[type[Record], Callable[[core.Context, int], object]]] = {
    "report_metrics": (Report, lambda context, number: context.train.report_metrics(f"of {number}", 1, {"loss": 1.0})),
    "report_metrics of media": (
        Report,
        lambda context, number: context.train.report_metrics("texts", number, {f"of {number}": Text("equal")}),
    ),
    "report_progress": (ProgressReported, lambda context, number: context.train.report_progress(number / 1000)),
    "set_status": (StatusSet, lambda context, number: context.train.set_status(f"at {number}")),
    "set_metadata": (MetadataSet, lambda context, number: context.train.set_metadata({"number": number})),
    "alert": (Alert, lambda context, number: context.alert(f"of {number}")),
    "report_task_using_checkpoint": (
        CheckpointUsed,
        lambda context, number: context.experimental.report_task_using_checkpoint(SimpleNamespace(uuid=str(number))),
    ),
    "delete": (CheckpointDeleted, lambda context, number: context.checkpoint.delete(a_checkpoint(context, number))),
}


def a_checkpoint(context: core.Context, number: int) -> str:
    with context.checkpoint.store_path({"steps_completed": number}) as (path, storage_id):
        (path / "model").write_text(str(number))
    return storage_id


@pytest.mark.parametrize("call", RECORDING)
@promise("threads-share")
def test_what_each_thread_records_is_recorded(context: core.Context, home: Home, call: str) -> None:
    """Each call of each thread leaves its record."""
    kind, record = RECORDING[call]

    in_threads(lambda number: record(context, number))

    assert len(recorded(home, kind)) == NUM_THREADS * NUM_ROUNDS


@pytest.mark.parametrize("wait", [True, False])
@promise("background-save-whole", "threads-share")
def test_what_each_thread_saves_is_recorded(home: Home, tmp_path: Path, wait: bool) -> None:
    """Each checkpoint whose call has returned is recorded, whether the call waits for it or not."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "model").write_text("weights")

    def save(context: core.Context, number: int) -> str:
        metadata = {"steps_completed": number}
        if number % 2:
            return context.checkpoint.upload(source, metadata, wait=wait)
        with context.checkpoint.store_path(metadata, wait=wait) as (path, storage_id):
            (path / "model").write_text(str(number))
        return storage_id

    for trial_id in range(1, NUM_ROUNDS + 1):
        with core.init(name="threads") as opened:
            saved = in_threads(functools.partial(save, opened), 1)

        stored = [record.storage_id for record in recorded(home, CheckpointStored, trial_id)]
        assert sorted(stored) == sorted(map(str, saved))


@promise("background-failure-raised-once", "threads-share")
def test_each_failed_save_of_each_thread_is_told(context: core.Context) -> None:
    """As many failures are told, by the calls that wait, as saves have returned and then failed."""

    def fail(path: Path) -> None:
        raise OSError("a disk of this test")

    def save(number: int) -> BaseException | None:
        try:
            with context.checkpoint.store_path({"steps_completed": number}, wait=False, write_later=fail):
                pass
        except OSError as error:
            return error
        return None

    outcomes = in_threads(save)
    with pytest.raises(OSError, match="a disk of this test") as last:
        context.checkpoint.wait()

    told = [last.value, *(each for each in outcomes if isinstance(each, BaseException))]
    assert sum(1 + len(getattr(each, "__notes__", ())) for each in told) == outcomes.count(None)


def test_hyperparameters_of_each_thread_are_recorded(context: core.Context, home: Home) -> None:
    """Threads that add hyperparameters at once lose none of each other's."""
    in_threads(lambda number: context.record_hparams({f"of {number}": number}, update=True))

    hparams = home.trial(1).read_record().hparams
    assert hparams == {f"of {number}": number for number in range(NUM_THREADS * NUM_ROUNDS)}


def test_the_first_question_of_several_threads_catches_the_signal_once(home: Home) -> None:
    """Threads that ask for a stop at once, and for the first time, get an answer, and closing restores the handler."""
    with core.init(name="threads") as context:
        in_threads(lambda _: context.preempt.should_preempt())
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_several_threads_switch_one_profiler(context: core.Context) -> None:
    """Nothing samples any more after the last one has switched it off."""
    in_threads(lambda _: context.profiler.on())
    in_threads(lambda _: context.profiler.off())

    assert "core-sdk-profiler" not in [thread.name for thread in threading.enumerate()]


def test_a_context_that_several_threads_close_ends_once(home: Home) -> None:
    """The end of the attempt is recorded once."""
    context = core.init(name="threads")
    context.start()

    in_threads(lambda _: context.close())

    assert len(recorded(home, Ended)) == 1
