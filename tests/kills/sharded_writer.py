"""Ranks in processes of their own that store sharded checkpoints until one of them is killed.

Every other save is in the background.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from distributed.ranks import place

from core_sdk._home.journal import JournalWriter
from core_sdk._home.storage import DirectoryStorage, Storage
from core_sdk.core import CheckpointContext, DistributedContext
from core_sdk.errors import ChannelError

TOLD = 3
"""The exit status of a rank that has learned of another's death."""
TIMEOUT_S = 60.0

_NUM_KEPT = 2
_CHANGES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir"})


class RankProcess:
    """One rank; `storage_ids` gets each id once the rank's call has returned, and at the end what it was told."""

    def __init__(
        self,
        folder: Path,
        rank: int,
        size: int,
        num_checkpoints: int | None = None,
        dies_at: int | None = None,
        open_storage: Callable[[], Storage] | None = None,
        first_step: int = 1,
    ) -> None:
        """Without `open_storage` it stores in the directory `checkpoints` of the folder."""
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload(["core_sdk.core", "core_sdk._home.storage"])
        self.storage_ids, sender = processes.Pipe(duplex=False)
        open_storage = open_storage or partial(DirectoryStorage, folder / "checkpoints")
        arguments = (folder, rank, size, num_checkpoints, dies_at, open_storage, first_step, sender)
        self._process = processes.Process(target=_run, args=arguments)
        self._process.start()
        sender.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> tuple[int | None, list[str]]:
        """Returns its exit status, which is None if it hangs, and all that it has said."""
        said = []
        with contextlib.suppress(EOFError):
            while self.storage_ids.poll(TIMEOUT_S):
                said.append(self.storage_ids.recv())
        self._process.join(TIMEOUT_S)
        status = self._process.exitcode
        self._process.kill()
        self._process.join()
        self._process.close()
        self.storage_ids.close()
        return status, said


def _run(
    folder: Path,
    rank: int,
    size: int,
    num_checkpoints: int | None,
    dies_at: int | None,
    open_storage: Callable[[], Storage],
    first_step: int,
    sender: Connection[Any, Any],
) -> None:
    try:
        with (
            contextlib.closing(JournalWriter(folder / f"{rank}.journal")) as journal,
            _joined(folder, rank, size) as us,
        ):
            if dies_at is not None:
                _die_at(dies_at)
            checkpoint = CheckpointContext(open_storage(), us, journal)
            _write_checkpoints(checkpoint, rank, num_checkpoints, first_step, sender)
    except ChannelError as error:
        sender.send(str(error))
        sys.exit(TOLD)


def _joined(folder: Path, rank: int, size: int) -> DistributedContext:
    return DistributedContext(
        **place(rank, size),
        rendezvous=str(folder / "meeting"),
        timeout_s=TIMEOUT_S,
        join_timeout_s=TIMEOUT_S,
    )


def _die_at(change: int) -> None:
    """Kills this process where it makes its n-th change to a file system."""
    counter = itertools.count(1)

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        is_change = event in _CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if is_change and next(counter) == change:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def _write_checkpoints(
    checkpoint: CheckpointContext,
    rank: int,
    num_checkpoints: int | None,
    first_step: int,
    sender: Connection[Any, Any],
) -> None:
    committed: list[str] = []
    for steps_completed in itertools.islice(itertools.count(first_step), num_checkpoints):
        committed.append(_store_shard(checkpoint, rank, steps_completed))
        sender.send(committed[-1])
        if rank == 0 and len(committed) > _NUM_KEPT:
            checkpoint.delete(committed.pop(0))


def _store_shard(checkpoint: CheckpointContext, rank: int, steps_completed: int) -> str:
    generator = random.Random()

    def write(path: Path) -> None:
        for index in range(3):
            (path / "layers" / f"{rank}-{index}.bin").write_bytes(generator.randbytes(generator.randrange(20_000)))

    metadata, wait = {"steps_completed": steps_completed}, steps_completed % 2 == 0
    with checkpoint.store_path(metadata, shard=True, wait=wait, write_later=write) as (path, storage_id):
        (path / "layers").mkdir()
        (path / "config").write_bytes(b"same")
    checkpoint.wait()
    return storage_id
