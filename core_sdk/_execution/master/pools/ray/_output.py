"""The output of an attempt on several nodes: the others' output is added to the first one's log, as under `srun`."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import ray

from core_sdk._ground.files import write_atomically, write_whole
from core_sdk._ground.ownership import give_to_owner_of, make_directory
from core_sdk._home.folders import TrialFolder

logger = logging.getLogger("core_sdk.master")

_CHUNK_BYTES = 1 << 20
# How long a node waits for news.
_NEWS_S = 0.5
_POLL_S = 0.05


class OutputChunk(NamedTuple):
    content: bytes
    is_last: bool


def read_output(find: Callable[[], TrialFolder | None], number: int, offset: int) -> OutputChunk:
    """Returns whole lines of a node's output from byte `offset` on. Waits a moment for them.

    `find` returns the folder in which the attempt runs; None as long as it was not started.
    """
    deadline = time.monotonic() + _NEWS_S
    while True:
        folder = find()
        # Asked before the output is read, so that all of it is read once the attempt has ended.
        is_over = folder is not None and not folder.is_running(number)
        content = b"" if folder is None else folder.read_log(number, offset, _CHUNK_BYTES)
        if not is_over and len(content) < _CHUNK_BYTES:
            content = content[: content.rfind(b"\n") + 1]
        if content or is_over or time.monotonic() > deadline:
            return OutputChunk(content, is_last=not content and is_over)
        time.sleep(_POLL_S)


class NodeOutput:
    """Adds the output of another node to the log of the first one, in a thread, from construction on.

    How much was added is kept in a file, so that another process can go on. If this one is killed between the two
    writes, the lines between are kept twice.
    """

    def __init__(self, folder: TrialFolder, number: int, node: int, actor: Any) -> None:
        """`folder` belongs to the first node, and `actor` to the other one."""
        self._log = folder.log_path(number)
        self._added_path = folder.of_node(node).path / f"{number}.added"
        self._number = number
        self._actor = actor
        self._thread = threading.Thread(target=self._add, name="core-sdk-output", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits until all output is kept, or the other node or its actor has died."""
        self._thread.join()

    def _add(self) -> None:
        make_directory(self._added_path.parent, exist_ok=True)
        offset = self._num_added()
        try:
            while not (chunk := self._next(offset)).is_last:
                if chunk.content:
                    offset += len(chunk.content)
                    self._keep(chunk.content, offset)
        except (ray.exceptions.RayError, OSError) as error:
            logger.warning("further output of another node is not kept: %s", error)

    def _next(self, offset: int) -> OutputChunk:
        while True:
            try:
                chunk: OutputChunk = ray.get(self._actor.read_output.remote(self._number, offset))
                return chunk
            except ray.exceptions.ActorUnavailableError:  # a connection was lost, and perhaps nothing else
                time.sleep(_NEWS_S)

    def _num_added(self) -> int:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(self._added_path.read_text())
        return 0

    def _keep(self, content: bytes, offset: int) -> None:
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            give_to_owner_of(self._log.parent, self._log, descriptor)
            write_whole(descriptor, content)
        finally:
            os.close(descriptor)
        write_atomically(self._added_path, str(offset).encode(), is_durable=False)
