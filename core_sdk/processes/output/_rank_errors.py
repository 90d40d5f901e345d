"""What the ranks wrote to stderr: through our pipes, or into the files that the user chose instead."""

from __future__ import annotations

import os
from pathlib import Path

from core_sdk.processes.output._rank_output import RankOutput

_TAIL_BYTES = 1 << 16


class RankErrors:
    def __init__(self, output: RankOutput) -> None:
        self._output = output
        self._files: dict[int, Path] = {}

    def write_to(self, rank: int, path: Path | None) -> None:
        """From its next start on the rank's stderr is this file; None for our pipe."""
        if path is None:
            self._files.pop(rank, None)
        else:
            self._files[rank] = path

    def tail(self, rank: int) -> bytes:
        """The last 64 KiB; empty where nothing is kept."""
        path = self._files.get(rank)
        return self._output.tail(rank) if path is None else _end_of(path)

    def traceback_time(self, rank: int) -> float | None:
        """`time.monotonic()` when the last traceback began; None also for a file, which tells no times."""
        return None if rank in self._files else self._output.traceback_time(rank)

    def wait_for_end(self, rank: int, timeout_s: float) -> bool:
        return self._output.wait_for_end(rank, timeout_s)


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if not file.seekable():
                return b""
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""
