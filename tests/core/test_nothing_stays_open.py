"""What `init()` and the parts of a Context open and replace, closing the Context gives back."""

from __future__ import annotations

import builtins
import collections
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import wait_for

from core_sdk import core
from core_sdk._home import Home
from core_sdk.errors import StorageError


class Process(NamedTuple):
    """What a process has open and has replaced."""

    files: dict[str, int]
    num_threads: int
    handlers: dict[int, object]
    blocked_signals: frozenset[int]
    functions: list[object]
    variables: dict[str, str]


def this_process() -> Process:
    return Process(
        collections.Counter(filter(None, map(_opened, Path("/proc/self/fd").iterdir()))),
        len(list(Path("/proc/self/task").iterdir())),
        {number: signal.getsignal(number) for number in signal.valid_signals()},
        frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        [sys.exit, vars(builtins).get("exit"), vars(builtins).get("quit"), sys.excepthook, threading.excepthook],
        dict(os.environ),
    )


def _opened(descriptor: Path) -> str | None:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # the descriptor of the list itself
        return None


def use_every_part(context: core.Context) -> None:
    context.train.report_validation_metrics(1, {"loss": 1.0})
    context.train.get_experiment_best_validation()
    context.preempt.should_preempt()
    context.profiler.on()
    for operation in context.searcher.operations():
        operation.report_completed(1.0)
    for wait in (True, False):
        with context.checkpoint.store_path({"steps_completed": 1}, wait=wait) as (path, storage_id):
            (path / "model").write_text("weights")
    with context.checkpoint.restore_path(storage_id):
        pass
    context.checkpoint.delete(storage_id)


def train() -> None:
    with core.init(name="many") as context:
        use_every_part(context)


def train_with_a_policy() -> None:
    with core.init(labels=["a"], checkpoint_storage={"save_trial_latest": 1}, deadline=3600.0) as context:
        use_every_part(context)


def train_two_at_once() -> None:
    with core.init() as first, core.init() as second:
        use_every_part(first)
        use_every_part(second)


def write_about_another() -> None:
    with core.init():
        pass
    with core.init(trial=1, writer="evaluator") as context:
        context.train.report_validation_metrics(1, {"accuracy": 1.0})


def fail() -> None:
    with pytest.raises(OSError, match="of this test"), core.init():
        raise OSError("an error of this test")


def exit_with_a_status() -> None:
    with pytest.raises(SystemExit), core.init():
        sys.exit(3)


def never_start() -> None:
    core.init().close()


def forget() -> None:
    core.init().start()
    gc.collect()


def refuse_an_argument() -> None:
    with pytest.raises(TypeError):
        core.init(hparams=3)


def refuse_a_storage() -> None:
    with pytest.raises(StorageError):
        core.init(checkpoint_storage=str(Path(os.environ["CORE_SDK_HOME"]).parent / "ordinary" / "file"))


USES: dict[str, Callable[[], None]] = {
    use.__name__: use
    for use in (
        train,
        train_with_a_policy,
        train_two_at_once,
        write_about_another,
        fail,
        exit_with_a_status,
        never_start,
        forget,
        refuse_an_argument,
        refuse_a_storage,
    )
}


@pytest.mark.parametrize("use", USES)
def test_closing_gives_back_all_that_was_opened(home: Home, tmp_path: Path, use: str) -> None:
    """Descriptors, threads, handlers of signals, functions and variables are as they were before."""
    (tmp_path / "ordinary").write_text("a file")
    before = this_process()

    for _ in range(3):
        USES[use]()

    with contextlib.suppress(AssertionError):  # the next line shows the difference
        wait_for(lambda: this_process() == before, 5.0)  # a thread that has done its work may still be ending
    assert this_process() == before
