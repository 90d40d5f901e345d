"""The output of ranks, forwarded line by line to this process's own output, each line with its rank.

One thread reads all pipes and is the only one that writes, so that lines of ranks are never mixed. If the reader of the
output is slow, the thread waits for it, and so do the ranks, in `print`. Output without a reader is dropped, counted
and reported, so that neither `| head` nor a full disk disturbs the ranks.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._machine.processes.output._outlet import FileCopy, Outlet, Sink
from core_sdk._machine.processes.output._prefixed_lines import PrefixedLines
from core_sdk._machine.processes.output._stream import TAIL_BYTES, Stream

_STDOUT = 1
_STDERR = 2
_LOOK_S = 0.2


class RankPipes(msgspec.Struct, frozen=True):
    """Named pipes whose reading ends are open, so that opening them for writing does not block."""

    stdout_path: str
    stderr_path: str


class RankOutput:
    """Forwards the output of ranks, from construction to `close`. All answers are about the newest `open` of a rank.

    Thread-safe. A pipe is at its end when no process has it open for writing: close your own copies of the writing
    ends.
    """

    def __init__(
        self,
        directory: Path,
        stdout: int | Sink = _STDOUT,
        stderr: int | Sink = _STDERR,
        is_hurried: threading.Event | None = None,
    ) -> None:
        """Starts forwarding to these descriptors or sinks. The pipes are made in the `directory`.

        After `is_hurried` is set, it waits only a few seconds for a reader that does not read.
        """
        self._directory = directory / "output"
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._stdout, self._stderr = _sinks(stdout, stderr, is_hurried or threading.Event())
        self._num_opened = 0
        self._opened: dict[int, tuple[Stream, Stream]] = {}
        self._stderr_files: dict[int, Path | None] = {}
        self._words = PrefixedLines(b"")
        self._new: deque[Stream | bytes] = deque()
        self._streams: set[Stream] = set()
        self._changed = threading.Condition()
        self._is_closing = False
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        self._wake_read, self._wake_write = KeptDescriptor(wake_read), KeptDescriptor(wake_write)
        # It has no descriptor of its own, which a script could close.
        self._selector = selectors.PollSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._wake_read)
        self._thread = threading.Thread(target=self._run, name="core-sdk-rank-output", daemon=True)
        self._thread.start()

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
        stderr_lines: PrefixedLines | None = None,
    ) -> RankPipes:
        """Makes new pipes for a rank, so that a restarted rank's output does not mix with its predecessor's.

        `stderr_file` is the file into which the rank writes its stderr instead. What comes through the pipes is also
        written to the copies, which are closed with them. Each line begins with `prefix`, by default `[rank=N] `;
        `stderr_lines` makes the lines of stderr in a way of its own.
        """
        self._num_opened += 1
        name = f"rank{rank}.{self._num_opened}"
        paths = self._directory / f"{name}.stdout", self._directory / f"{name}.stderr"
        begin = (default_prefix(rank) if prefix is None else prefix).encode()
        streams = (
            Stream(paths[0], PrefixedLines(begin), self._stdout, stdout_copies),
            Stream(paths[1], stderr_lines or PrefixedLines(begin), self._stderr, stderr_copies),
        )
        self._opened[rank] = streams
        self._stderr_files[rank] = stderr_file
        self._new.extend(streams)
        self._wake()
        return RankPipes(str(paths[0]), str(paths[1]))

    def say(self, text: str) -> None:
        """Writes whole lines to stderr, never in the middle of a rank's line.

        Does not wait: they are written in order when the output allows it, at the latest by `close`.
        """
        self._new.append(text.rstrip("\n").encode(errors="surrogateescape") + b"\n")
        self._wake()

    def tail(self, rank: int) -> bytes:
        """Returns the last 64 KiB of the rank's stderr, unchanged; empty for a rank that was never opened."""
        if (file := self._stderr_files.get(rank)) is not None:
            return _end_of(file)
        return self._opened[rank][1].tail if rank in self._opened else b""

    def traceback_time(self, rank: int) -> float | None:
        """Returns the `time.monotonic()` at which the rank's last traceback began; None if its stderr is a file."""
        return self._opened[rank][1].traceback_time if rank in self._opened else None

    def wait_for_end(self, rank: int, timeout_s: float) -> bool:
        """Blocks until both pipes are at their end and their content has been written. Returns whether that happened.

        Returns False after `timeout_s`: a process that the rank left behind may hold a pipe open forever.
        """
        streams = self._opened.get(rank, ())
        with self._changed:
            return self._changed.wait_for(lambda: all(stream.is_ended for stream in streams), timeout_s)

    def close(self) -> None:
        """Forwards what is in the pipes now, without waiting for their writers, and reports what was dropped.

        Waits for a slow reader of this process's output, as `print` would, unless it is hurried. Does nothing the
        second time.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._wake()
        self._thread.join()
        self._selector.close()
        for sink in {self._stdout, self._stderr}:
            sink.close()
        self._wake_read.close()
        self._wake_write.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the pipe is full, and wakes the thread anyway; or the script has closed it
            os.write(self._wake_write.checked(), b"!")

    def _run(self) -> None:
        while not self._is_closing:
            self._forward_next()
        self._take_new()
        for stream in list(self._streams):
            stream.forward_rest()
            self._end(stream)
        self._stdout.finish(self._stderr)
        self._stderr.finish(self._stdout)

    def _forward_next(self) -> None:
        # In the order in which they became ready, so that a rank's stdout and stderr stay close to its own order.
        ready = [key.data for key, _ in self._selector.select(self._timeout_s())]
        for stream in ready:
            if stream in self._streams and not stream.forward():
                self._end(stream)
        for stream in self._streams.difference(ready):
            if stream.show_at <= time.monotonic():
                stream.show_unfinished()
        if self._wake_read in ready:
            try:
                os.read(self._wake_read.checked(), 1 << 12)
            except OSError:  # the script has closed it
                self._selector.unregister(self._wake_read)
            self._take_new()

    def _timeout_s(self) -> float | None:
        show_at = min((stream.show_at for stream in self._streams), default=math.inf)
        if not self._wake_read.is_ours():
            show_at = min(show_at, time.monotonic() + _LOOK_S)  # nothing wakes this thread any more
        return None if show_at == math.inf else max(0.0, show_at - time.monotonic())

    def _take_new(self) -> None:
        while self._new:
            match self._new.popleft():
                case Stream() as stream:
                    self._streams.add(stream)
                    self._selector.register(stream, selectors.EVENT_READ, stream)
                case words:
                    self._stderr.write(self._words.feed(words), self._words)

    def _end(self, stream: Stream) -> None:
        self._selector.unregister(stream)
        self._streams.remove(stream)
        stream.close()
        with self._changed:
            stream.is_ended = True
            self._changed.notify_all()


def default_prefix(rank: int) -> str:
    """Returns what each line of a rank begins with if nobody has chosen anything else."""
    return f"[rank={rank}] "


def _sinks(stdout: int | Sink, stderr: int | Sink, is_hurried: threading.Event) -> tuple[Sink, Sink]:
    """Returns the sinks. If both are the same terminal or file, one of them keeps their lines whole."""
    out = Outlet(stdout, is_hurried) if isinstance(stdout, int) else stdout
    if isinstance(stdout, int) and isinstance(stderr, int) and _are_same(stdout, stderr):
        return out, out
    return out, Outlet(stderr, is_hurried) if isinstance(stderr, int) else stderr


def _are_same(descriptor: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(descriptor, other)
    except OSError:
        # One of them is closed.
        return False


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if not file.seekable():
                return b""
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read(TAIL_BYTES)
    except OSError:
        return b""
