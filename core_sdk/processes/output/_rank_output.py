"""The output of ranks, forwarded line by line to this process's own output, each line with its rank.

One thread reads all pipes and is the only one that writes, so that lines of ranks are never mixed. If the reader of the
output is slow, the thread waits for it, and so do the ranks, in `print`. Output without a reader is dropped, counted
and reported, so that neither `| head` nor a full disk disturbs the ranks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk.processes.output._copies import FileCopy
from core_sdk.processes.output._forwarder import Forwarder
from core_sdk.processes.output._prefixed_lines import PrefixedLines
from core_sdk.processes.output._stream import Stream

_STDOUT = 1
_STDERR = 2
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class RankPipes:
    """Named pipes whose reading ends are open, so that opening them for writing does not block."""

    stdout_path: str
    stderr_path: str


class RankOutput:
    """Forwards the output of ranks while they run. Thread-safe. All answers are about the newest `open` of a rank.

    A pipe is at its end when no process has it open for writing: close your own copies of the writing ends.
    """

    def __init__(
        self,
        launch_dir: Path,
        stdout_fd: int = _STDOUT,
        stderr_fd: int = _STDERR,
        is_hurried: threading.Event | None = None,
    ) -> None:
        """Starts forwarding. After `is_hurried` is set, it waits only a few seconds for a reader that does not read."""
        self._directory = launch_dir / "output"
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._num_opened = 0
        self._streams: dict[int, tuple[Stream, Stream]] = {}
        self._stderr_files: dict[int, Path | None] = {}
        self._forwarder = Forwarder(stdout_fd, stderr_fd, is_hurried or threading.Event())

    def __enter__(self) -> RankOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(
        self,
        rank: int,
        stderr_file: Path | None = None,
        stdout_copies: Sequence[FileCopy] = (),
        stderr_copies: Sequence[FileCopy] = (),
        prefix: str | None = None,
    ) -> RankPipes:
        """Makes new pipes for a rank, so that a restarted rank's output does not mix with its predecessor's.

        `stderr_file` is the file into which the rank writes its stderr instead. What comes through the pipes is also
        written to the copies, which are closed with them. Each line begins with `prefix`, by default `[rank=N] `.
        """
        self._num_opened += 1
        name = f"rank{rank}.{self._num_opened}"
        stdout_path, stderr_path = self._directory / f"{name}.stdout", self._directory / f"{name}.stderr"
        begin = (f"[rank={rank}] " if prefix is None else prefix).encode()
        streams = (
            Stream(stdout_path, PrefixedLines(begin), self._forwarder.stdout, stdout_copies),
            Stream(stderr_path, PrefixedLines(begin), self._forwarder.stderr, stderr_copies),
        )
        self._streams[rank] = streams
        self._stderr_files[rank] = stderr_file
        self._forwarder.add(*streams)
        return RankPipes(str(stdout_path), str(stderr_path))

    def say(self, text: str) -> None:
        """Writes whole lines to stderr, never in the middle of a rank's line.

        Does not wait: they are written in order when the output allows it, at the latest by `close`.
        """
        self._forwarder.say(text.rstrip("\n").encode(errors="surrogateescape") + b"\n")

    def tail(self, rank: int) -> bytes:
        """Returns the last 64 KiB of the rank's stderr, unchanged; empty for a rank that was never opened."""
        if (file := self._stderr_files.get(rank)) is not None:
            return _end_of(file)
        return self._streams[rank][1].last_words.tail if rank in self._streams else b""

    def traceback_time(self, rank: int) -> float | None:
        """Returns the `time.monotonic()` at which the rank's last traceback began; None if its stderr is a file."""
        return self._streams[rank][1].last_words.traceback_time if rank in self._streams else None

    def wait_for_end(self, rank: int, timeout_s: float) -> bool:
        """Blocks until both pipes are at their end and their content has been written. Returns whether that happened.

        Returns False after `timeout_s`: a process that the rank left behind may hold a pipe open forever.
        """
        return self._forwarder.wait_for_end(self._streams.get(rank, ()), timeout_s)

    def close(self) -> None:
        """Forwards what is in the pipes now, without waiting for their writers, and reports what was dropped.

        Waits for a slow reader of this process's output, as `print` would, unless it is hurried.
        """
        self._forwarder.close()


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if not file.seekable():
                return b""
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""
