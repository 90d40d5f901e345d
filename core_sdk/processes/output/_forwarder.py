"""The thread that reads the ranks' pipes and writes their lines."""

from __future__ import annotations

import math
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Sequence

from core_sdk.processes.output._outlet import Outlet, Sink
from core_sdk.processes.output._prefixed_lines import PrefixedLines
from core_sdk.processes.output._stream import Stream


class Forwarder:
    """The thread that forwards output, from construction to `close`. Only the caller of `close` waits for it."""

    def __init__(self, stdout_fd: int, stderr_fd: int, is_hurried: threading.Event) -> None:
        """Starts the thread. After `is_hurried` is set, it waits only a few seconds for a reader that does not read."""
        # If both are the same terminal or file, one outlet keeps their lines whole.
        descriptors = [stdout_fd] if _are_same(stdout_fd, stderr_fd) else [stdout_fd, stderr_fd]
        self._outlets = [Outlet(descriptor, is_hurried) for descriptor in descriptors]
        sinks = [Sink(outlet) for outlet in self._outlets]
        self.stdout, self.stderr = sinks[0], sinks[-1]
        self._words = PrefixedLines(b"")
        self._new_streams: deque[Stream] = deque()
        self._new_words: deque[bytes] = deque()
        self._streams: set[Stream] = set()
        self._changed = threading.Condition()
        self._is_closing = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._wake_read)
        self._thread = threading.Thread(target=self._run, name="core-sdk-rank-output", daemon=True)
        self._thread.start()

    def add(self, *streams: Stream) -> None:
        self._new_streams.extend(streams)
        self._wake()

    def say(self, words: bytes) -> None:
        """Writes whole lines to stderr."""
        self._new_words.append(words)
        self._wake()

    def wait_for_end(self, streams: Sequence[Stream], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: all(stream.is_ended for stream in streams), timeout_s)

    def close(self) -> None:
        """Ends the thread. Does nothing the second time."""
        if self._is_closing:
            return
        self._is_closing = True
        self._wake()
        self._thread.join()
        self._selector.close()
        for outlet in self._outlets:
            outlet.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            return  # the pipe is full, and wakes the thread anyway

    def _run(self) -> None:
        while not self._is_closing:
            self._forward_next()
        self._add_new_streams()
        for stream in list(self._streams):
            stream.forward_rest()
            self._end(stream)
        self._write_new_words()
        self.stdout.close(self.stderr)
        self.stderr.close(self.stdout)

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
            os.read(self._wake_read, 1 << 12)
            self._add_new_streams()
            self._write_new_words()

    def _timeout_s(self) -> float | None:
        show_at = min((stream.show_at for stream in self._streams), default=math.inf)
        return None if show_at == math.inf else max(0.0, show_at - time.monotonic())

    def _add_new_streams(self) -> None:
        while self._new_streams:
            stream = self._new_streams.popleft()
            self._streams.add(stream)
            self._selector.register(stream, selectors.EVENT_READ, stream)

    def _write_new_words(self) -> None:
        while self._new_words:
            self.stderr.write(self._words.feed(self._new_words.popleft()), self._words)

    def _end(self, stream: Stream) -> None:
        self._selector.unregister(stream)
        self._streams.remove(stream)
        stream.close()
        with self._changed:
            stream.is_ended = True
            self._changed.notify_all()


def _are_same(descriptor: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(descriptor, other)
    except OSError:
        # One of them is closed.
        return False
