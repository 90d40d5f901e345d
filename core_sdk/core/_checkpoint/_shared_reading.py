"""Reading a checkpoint once for all ranks of a node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core_sdk.core._checkpoint._background_saves import Saves
from core_sdk.core._checkpoint._together import leave_together, raise_if_error, telling
from core_sdk.distributed import Channel
from core_sdk.storage import METADATA_NAME, Selector, Storage, check_storage_id


class _ReadRequest(NamedTuple):
    """What one rank tells the others before anything is read."""

    storage_id: str
    directory: tuple[str, str] | None
    """Host and real path."""
    has_selector: bool
    is_being_stored: bool


def shared_download(
    storage: Storage,
    channel: Channel,
    saves: Saves,
    host: str,
    storage_id: str,
    ckpt_dir: str | os.PathLike[str],
    selector: Selector | None,
) -> None:
    """Collective within the node: each directory that a rank names gets the files that any rank accepts, once."""
    requests = _exchange(
        channel, saves, lambda: _request(storage_id, saves, selector, (host, os.path.realpath(ckpt_dir)))
    )
    accept = _accepted_by_any(storage, channel, requests, selector)
    directories = [request.directory for request in requests]
    is_first = directories.index(directories[channel.rank]) == channel.rank
    fetch = telling(lambda: storage.download(storage_id, Path(ckpt_dir), accept) if is_first else None)
    for outcome in channel.allgather_outcome(fetch, is_patient=True):
        raise_if_error(outcome)


@contextlib.contextmanager
def shared_restore(
    storage: Storage, channel: Channel, saves: Saves, storage_id: str, selector: Selector | None
) -> Iterator[Path]:
    """Entered and left by all ranks of a node; gives the directory that one of them has opened and verified."""
    requests = _exchange(channel, saves, lambda: _request(storage_id, saves, selector))
    accept = _accepted_by_any(storage, channel, requests, selector)
    # What was opened may be temporary: it stays until all have left.
    with contextlib.ExitStack() as opened:
        open_here = telling(lambda: opened.enter_context(storage.open(storage_id, accept)))
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
    """All want the same checkpoint; if it is just being stored, it is waited for."""
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
    storage: Storage, channel: Channel, requests: Sequence[_ReadRequest], selector: Selector | None
) -> Selector | None:
    """A rank without a selector accepts all."""
    if selector is None or not all(request.has_selector for request in requests):
        return None
    storage_id = requests[0].storage_id
    names = raise_if_error(channel.broadcast_outcome(telling(lambda: _names(storage, storage_id))))
    verdicts = channel.allgather_outcome(lambda: [bool(selector(name)) for name in names])
    accepted = {name for name, *answers in zip(names, *verdicts, strict=True) if any(answers)}
    return accepted.__contains__


def _names(storage: Storage, storage_id: str) -> list[str]:
    return [name for name in storage.manifest(storage_id).resources if name != METADATA_NAME]
