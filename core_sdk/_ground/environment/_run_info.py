"""The run info, a file in which the program that started this script describes it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from core_sdk._ground.environment._settings import Environment
from core_sdk._ground.environment.names import RUN_INFO_VARIABLE
from core_sdk._ground.records import PLACED, ClusterInfo, Setback, decode_file, from_json
from core_sdk.errors import AttemptError


def get_cluster_info() -> ClusterInfo | None:
    """Returns the description of the attempt; None if no trial has begun, as in a plain `python train.py`.

    Raises `AttemptError` if CORE_SDK_RUN_INFO names a file that cannot be read.
    """
    info = run_info()
    return None if info is None or info.task_type == PLACED else info


def run_info() -> ClusterInfo | None:
    """Returns the run info for launchers and `init()`, which also use one that describes only the nodes."""
    path = Environment.read().run_info
    if path is None:
        return None
    try:
        info = decode_file(path.read_bytes(), ClusterInfo)
        info.user_data = from_json(info.user_data)
        if info.trial_or_none is not None:
            info.trial_or_none.hparams = from_json(info.trial_or_none.hparams)
            info.trial_or_none.config = from_json(info.trial_or_none.config)
    except (OSError, ValueError) as error:
        raise AttemptError.bad_run_info(path, str(error)) from error
    return info


def use_run_info(path: Path) -> None:
    """Makes `get_cluster_info()` describe another attempt, in this process and those that it starts later."""
    os.environ[RUN_INFO_VARIABLE] = str(path)


class BegunTrial:
    """A trial that this process has begun. `trial_seed()` and `trial_setback()` tell of it until it is closed."""

    _open: ClassVar[list[BegunTrial]] = []
    _process: ClassVar[int | None] = None
    """The process that has begun the last one: a forked child has begun none."""

    def __init__(self, seed: int, setback: Setback | None = None) -> None:
        if not has_begun_attempt():
            BegunTrial._process, BegunTrial._open = os.getpid(), []
        self.seed = seed
        self.setback = setback
        self._open.append(self)

    def close(self) -> None:
        self._open.remove(self)


def has_begun_attempt() -> bool:
    """Returns whether this process has begun an attempt before."""
    return BegunTrial._process == os.getpid()


def trial_seed() -> int | None:
    """Returns the seed of the trial that this process trains, or else was started for; None if there is none."""
    if has_begun_attempt() and BegunTrial._open:
        return BegunTrial._open[-1].seed
    info = get_cluster_info()
    return None if info is None else info.trial.trial_seed


def trial_setback() -> Setback | None:
    """Returns what a guard has decided about the attempt that this process executes; None if nothing."""
    if has_begun_attempt() and BegunTrial._open:
        return BegunTrial._open[-1].setback
    info = get_cluster_info()
    return None if info is None or info.trial_or_none is None else info.trial_or_none.setback


@contextlib.contextmanager
def run_info_used(path: Path) -> Iterator[None]:
    """Applies `use_run_info` during the block only."""
    earlier = os.environ.get(RUN_INFO_VARIABLE)
    use_run_info(path)
    try:
        yield
    finally:
        if earlier is None:
            os.environ.pop(RUN_INFO_VARIABLE, None)
        else:
            os.environ[RUN_INFO_VARIABLE] = earlier
