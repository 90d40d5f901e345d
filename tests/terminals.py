"""A person at a terminal, which is a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from processes import TIMEOUT_S, kill_tree


class Person:
    """Somebody who runs a command on a terminal of 30 rows and 100 columns."""

    def __init__(self, directory: Path, command: Sequence[str], stdout: int | None = None) -> None:
        self.terminal, device = os.openpty()
        termios.tcsetwinsize(self.terminal, (30, 100))
        self.mode = termios.tcgetattr(self.terminal)
        self.seen = b""
        self.process = subprocess.Popen(
            command,
            stdin=device,
            stdout=device if stdout is None else stdout,
            stderr=device,
            cwd=directory,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(device)

    def reads(self, text: str) -> None:
        """Blocks until this was shown."""
        deadline = time.monotonic() + TIMEOUT_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self._read()

    def types(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def waits(self) -> int:
        """Waits until the command has ended, and all of its output was shown."""
        while self._read():
            pass
        return self.process.wait(TIMEOUT_S)

    def closes_the_terminal(self) -> None:
        """Closes the terminal: the kernel then sends SIGHUP to the command."""
        os.close(self.terminal)
        self.terminal = -1

    def leaves(self) -> None:
        """Kills what the command has started."""
        kill_tree(self.process.pid)
        self.process.wait()
        if self.terminal >= 0:
            self.closes_the_terminal()

    def _read(self) -> bytes:
        if not select.select([self.terminal], [], [], TIMEOUT_S)[0]:
            raise AssertionError(self.seen)
        try:
            chunk = os.read(self.terminal, 65536)
        except OSError:  # nobody has it open any more
            return b""
        self.seen += chunk
        return chunk
