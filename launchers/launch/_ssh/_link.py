"""The link of a host's launcher to the head that has started it.

Commands come as lines of the standard input: `signal N`, `end`, `kill`, and `alive`, by which the head shows that it is
there. When they end, or none comes for a minute, the head is dead, and the ranks are ended as with `end`: SIGTERM, a
short grace, and a kill of all that is left. Reports to the head are lines on stderr, among the ranks' lines, that
begin with a mark.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from core_sdk._ground.environment import taken_head
from core_sdk._ground.typed_lines import to_line
from core_sdk._machine.processes import Guardian
from launch._result import LaunchResult

_SILENCE_S = 60.0
_GRACE_S = 10.0
_CHUNK_BYTES = 1 << 16
_KILLED = 137


class HostReport(msgspec.Struct, frozen=True):
    """The newest report of a host to the head."""

    refused: str = ""
    """The reason for which the launcher was not started; else empty."""
    result: LaunchResult | None = None
    """The result of the host's launch; None while it runs."""


class HeadLink:
    """The link to the head. Tells it at once that the launcher runs."""

    def __init__(self, mark: str, directory: Path) -> None:
        self.directory = directory
        """The launcher's private directory, which has been made for it."""
        self._mark = mark.encode()
        # The ranks inherit the standard input, and must not read the commands.
        self._commands = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._tell(HostReport())

    @classmethod
    def of_process(cls) -> HeadLink | None:
        """Returns the link of this process, the first time; None if no head has started it."""
        return None if (head := taken_head()) is None else cls(*head)

    def obey(self, guardian: Guardian) -> None:
        """Obeys the head from now on, in a thread."""
        threading.Thread(target=self._obey, args=[guardian], name="launch-head", daemon=True).start()

    def report(self, result: LaunchResult) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)  # a launch that was refused has not used it
        self._tell(HostReport(result=result))

    def _obey(self, guardian: Guardian) -> None:
        commands = self._lines()
        for command in commands:
            if command.startswith(b"signal "):
                os.kill(os.getpid(), int(command.split()[1]))
            elif command == b"end":
                break
            elif command == b"kill":
                _kill(guardian)
        os.kill(os.getpid(), signal.SIGTERM)
        over = threading.Timer(_GRACE_S, _kill, [guardian])
        over.daemon = True
        over.start()
        # A `kill` does not wait for the grace. The end of the commands changes nothing any more.
        if b"kill" in commands:
            _kill(guardian)

    def _lines(self) -> Iterator[bytes]:
        """Yields the commands, until they end or none comes for too long."""
        held = b""
        while select.select([self._commands], [], [], _SILENCE_S)[0] and (
            chunk := os.read(self._commands, _CHUNK_BYTES)
        ):
            *lines, held = (held + chunk).split(b"\n")
            yield from lines

    def _tell(self, report: HostReport) -> None:
        line = self._mark + to_line(report)
        with contextlib.suppress(OSError):  # the head is gone
            while line:
                line = line[os.write(2, line) :]


def _kill(guardian: Guardian) -> NoReturn:
    guardian.end_all()
    os._exit(_KILLED)
