"""Reading a checkpoint once for all ranks of a node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core_sdk._distributed import Channel
from core_sdk._home.storage import METADATA_NAME, Selector, Storage, check_storage_id
from core_sdk.core._checkpoint._background_saves import Saves
from core_sdk.core._checkpoint._together import leave_together, raise_if_error, telling

StorageOf = Callable[[str], Storage]
"""Returns the storage that has a checkpoint. Only the rank that reads asks it."""


class _ReadRequest(NamedTuple):
    """The message that each rank sends to the others before anything is read."""

    storage_id: str
    directory: tuple[str, str] | None
    """The host and the real path."""
    has_selector: bool
    is_being_stored: bool


def shared_download(
    storage_of: StorageOf,
    channel: Channel,
    saves: Saves,
    host: str,
    storage_id: str,
    ckpt_dir: str | os.PathLike[str],
    selector: Selector | None,
) -> None:
    """Copies the files that any rank accepts into each directory that a rank names. Collective within the node."""
    requests = _exchange(
        channel, saves, lambda: _request(storage_id, saves, selector, (host, os.path.realpath(ckpt_dir)))
    )
    accept = _accepted_by_any(storage_of, channel, requests, selector)
    directories = [request.directory for request in requests]
    is_first = directories.index(directories[channel.rank]) == channel.rank
    fetch = telling(lambda: storage_of(storage_id).download(storage_id, Path(ckpt_dir), accept) if is_first else None)
    for outcome in channel.allgather_outcome(fetch, is_patient=True):
        raise_if_error(outcome)


@contextlib.contextmanager
def shared_restore(
    storage_of: StorageOf, channel: Channel, saves: Saves, storage_id: str, selector: Selector | None
) -> Iterator[Path]:
    """Gives all ranks of a node the directory that one of them has opened and verified. Entering and leaving block
    until all ranks do so.
    """
    requests = _exchange(channel, saves, lambda: _request(storage_id, saves, selector))
    accept = _accepted_by_any(storage_of, channel, requests, selector)
    # The directory may be temporary, so it stays until all ranks have left.
    with contextlib.ExitStack() as opened:
        open_here = telling(lambda: opened.enter_context(storage_of(storage_id).open(storage_id, accept)))
        path = raise_if_error(channel.broadcast_outcome(open_here, is_patient=True))
        try:
            yield path
        except BaseException as error:
            leave_together(channel, error)
            raise
        leave_together(channel, None)


def _request(
    storage_id: str, saves: Saves, selector: Selector | None, directory: tuple[str, str] | None = None
) -> _ReadRequest:
    is_being_stored = saves.is_pending(check_storage_id(storage_id))
    return _ReadRequest(storage_id, directory, selector is not None, is_being_stored)


def _exchange(channel: Channel, saves: Saves, request: Callable[[], _ReadRequest]) -> list[_ReadRequest]:
    """Returns the requests of all ranks, once the checkpoint is stored. Collective.

    Raises `ValueError` if the ranks ask for different checkpoints.
    """
    requests = channel.allgather_outcome(request)
    ids = {request.storage_id: None for request in requests}
    if len(ids) > 1:
        raise ValueError(
            f"the ranks of this node ask for different checkpoints, {', '.join(ids)}: to read each its own, pass "
            "DownloadMode.NoSharedDownload"
        )
    if any(request.is_being_stored for request in requests):
        channel.allgather_outcome(lambda: saves.wait_for(requests[0].storage_id), is_patient=True)
    return requests


def _accepted_by_any(
    storage_of: StorageOf, channel: Channel, requests: Sequence[_ReadRequest], selector: Selector | None
) -> Selector | None:
    """Returns a selector for the files that any rank accepts; None if some rank has no selector. Collective."""
    if selector is None or not all(request.has_selector for request in requests):
        return None
    storage_id = requests[0].storage_id
    names = raise_if_error(channel.broadcast_outcome(telling(lambda: _names(storage_of(storage_id), storage_id))))
    verdicts = channel.allgather_outcome(lambda: [bool(selector(name)) for name in names])
    accepted = {name for name, *answers in zip(names, *verdicts, strict=True) if any(answers)}
    return accepted.__contains__


def _names(storage: Storage, storage_id: str) -> list[str]:
    return [name for name in storage.manifest(storage_id).resources if name != METADATA_NAME]
