"""The ranks' output, brought line by line to the launcher's own, each line with its rank.

One thread reads all pipes and is the only one that writes, so that no rank's line is torn by another's. It waits for a
slow reader of the launcher's output, and then so do the ranks, in their `print`; it drops, counts and says what nobody
takes any more, so that neither `| head` nor a full disk reaches the ranks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from core_sdk.processes.output._forwarder import Forwarder
from core_sdk.processes.output._prefixed_lines import PrefixedLines
from core_sdk.processes.output._stream import Stream

_STDOUT = 1
_STDERR = 2
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class RankPipes:
    """Named pipes whose read ends are open: opening them for writing does not block."""

    stdout_path: str
    stderr_path: str


class RankOutput:
    """Open while ranks run; thread-safe. All questions are about the newest `open` of a rank.

    A pipe is at its end when *no* process has it open for writing. torch's `SubprocessHandler` keeps the write ends
    open in the launcher: close its `_stdout` and `_stderr` right after `start_processes`, else `wait_for_end` waits for
    its whole time-out. What a rank wrote is forwarded in any case.
    """

    def __init__(
        self,
        launch_dir: Path,
        stdout_fd: int = _STDOUT,
        stderr_fd: int = _STDERR,
        is_hurried: threading.Event | None = None,
    ) -> None:
        """Once `is_hurried` is set, a reader that takes nothing is waited for some seconds only."""
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

    def open(self, rank: int, stderr_file: Path | None = None) -> RankPipes:
        """Fresh pipes each time: a restarted rank's output does not mix with what its predecessor left behind.

        `stderr_file` is where the rank will write its stderr, if not into our pipe.
        """
        self._num_opened += 1
        name = f"rank{rank}.{self._num_opened}"
        stdout_path, stderr_path = self._directory / f"{name}.stdout", self._directory / f"{name}.stderr"
        prefix = b"[rank=%d] " % rank
        streams = (
            Stream(stdout_path, PrefixedLines(prefix), self._forwarder.stdout),
            Stream(stderr_path, PrefixedLines(prefix), self._forwarder.stderr),
        )
        self._streams[rank] = streams
        self._stderr_files[rank] = stderr_file
        self._forwarder.add(*streams)
        return RankPipes(str(stdout_path), str(stderr_path))

    def say(self, text: str) -> None:
        """The launcher's own words, as whole lines on stderr, never in the middle of a rank's.

        Does not wait: they are written, in order, when the output allows it, at the latest by `close`.
        """
        self._forwarder.say(text.rstrip("\n").encode(errors="surrogateescape") + b"\n")

    def tail(self, rank: int) -> bytes:
        """The last 64 KiB of the rank's stderr, as it wrote them; empty for a rank that was never opened."""
        if (file := self._stderr_files.get(rank)) is not None:
            return _end_of(file)
        return self._streams[rank][1].last_words.tail if rank in self._streams else b""

    def traceback_time(self, rank: int) -> float | None:
        """`time.monotonic()` when the last line that begins a Python traceback came from the rank's stderr.

        None also for a stderr in a file, which tells no times.
        """
        return self._streams[rank][1].last_words.traceback_time if rank in self._streams else None

    def wait_for_end(self, rank: int, timeout_s: float) -> bool:
        """Whether both pipes came to their end, and all that was in them to the launcher's own output.

        False after `timeout_s`: a process that the rank left behind may hold a pipe open for ever.
        """
        return self._forwarder.wait_for_end(self._streams.get(rank, ()), timeout_s)

    def close(self) -> None:
        """Forwards what is in the pipes now, waits for nobody who has them open, and says what was dropped.

        Waits for as long as the launcher's own output is slow, as `print` would, if it is not hurried.
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
