"""The head's view of the launcher of one host: a process of ssh, or a child, and its output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from core_sdk._ground.environment import login_variables
from core_sdk._ground.typed_lines import from_line
from core_sdk._machine.processes.output import PrefixedLines, RankOutput
from launch._result import MARK, LaunchResult
from launch._ssh import _host_program
from launch._ssh._hostfile import Host, Ssh, is_here
from launch._ssh._link import HostReport
from launch._ssh._ssh_command import ssh_argv, why_lost, why_not_started

# ssh may wait for processes that a rank has left behind to close its output.
_LAST_OUTPUT_S = 1.0
_FAILURE = 1
_MAX_RECORD_BYTES = 1 << 20


class RemoteLauncher:
    """The launcher of one host. Used by one thread; another thread delivers the host's reports."""

    def __init__(
        self,
        number: int,
        host: Host,
        ssh: Ssh,
        mark: str,
        output: RankOutput,
        log: Path,
        ring: Callable[[], None],
    ) -> None:
        """`log` is for ssh's log. Any thread calls `ring` when there is something new."""
        self.host = host
        self.is_child = is_here(host)
        """Whether the launcher runs on this machine, without ssh."""
        self.is_lost = False
        """Whether the launcher has ended without a report, after it had started."""
        self._ssh = ssh
        self._ring = ring
        self._number = number
        self._output = output
        self._log = log
        self._told: HostReport | None = None
        self._unsent = b""
        pipes = output.open(number, prefix="", stderr_lines=HostOutput(host.address, mark, self._take))
        program = [sys.executable, "-P", _host_program.__file__]
        argv = program if self.is_child else ssh_argv(host, ssh, program, self._log)
        stdin_fd, self._stdin = os.pipe()
        os.set_blocking(self._stdin, False)
        with (
            os.fdopen(stdin_fd, "rb") as stdin,
            Path(pipes.stdout_path).open("wb") as stdout,
            Path(pipes.stderr_path).open("wb") as stderr,
        ):
            self._process = subprocess.Popen(
                argv,
                # A child gets the variables that it would have on another host.
                env=login_variables() if self.is_child else None,
                cwd="/",
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                # Ctrl-C reaches all processes of a terminal's session, but only the head should pass it on.
                start_new_session=True,
            )
        threading.Thread(target=self._await_exit, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Sends a line, without waiting for a host that does not read; `send(b"")` tries again."""
        self._unsent += line
        try:
            self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # the launcher has ended; its exit status will tell why

    @property
    def is_unsettled(self) -> bool:
        """Whether something is still to be sent to the launcher or read from it."""
        return bool(self._unsent) or self._process.poll() is not None

    def result(self) -> LaunchResult | None:
        """Returns the launcher's result, or None while it runs."""
        if (self._told is None or self._told.result is None) and self._process.poll() is None:
            return None
        # Its last report may still be in the pipe, and the output of its ranks must precede its last messages.
        has_read_all = self._output.wait_for_end(self._number, _LAST_OUTPUT_S)
        if self._told is not None and self._told.result is not None:
            return self._told.result
        # If the head's own output has no reader, the pipe may not have been read to its end.
        return LaunchResult(_FAILURE, tuple(self._why_silent())) if has_read_all else None

    def kill(self) -> None:
        """Kills the connection or the child. The processes at its other end notice that, and end."""
        self._process.kill()

    def _why_silent(self) -> list[str]:
        code = self._process.wait()
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        if self._told is None:
            stderr = self._output.tail(self._number).decode(errors="replace")
            return why_not_started(self.host, self._ssh, code, log, stderr)
        if self._told.refused:
            return [f"{self.host.name}: {self._told.refused}"]
        self.is_lost = True
        return why_lost(self.host, log)

    def _take(self, report: HostReport) -> None:
        self._told = report
        self._ring()

    def _await_exit(self) -> None:
        self._process.wait()
        self._ring()


class HostOutput(PrefixedLines):
    """The stderr of a host. Takes the records out, and adds the host's name to the launcher's own messages."""

    def __init__(self, host: str, mark: str, tell: Callable[[HostReport], None]) -> None:
        super().__init__(b"")
        self._mark = mark.encode()
        self._record = re.compile(re.escape(self._mark) + rb"([^\n]*)\n")
        self._tell = tell
        self._with_host = MARK.encode() + host.encode() + b": "
        self._messages = re.compile(rb"^" + re.escape(MARK.encode()), re.MULTILINE)
        self._pending = b""

    def feed(self, chunk: bytes) -> bytes:
        text = self._record.sub(self._take, self._pending + chunk)
        start = self._start_of_record(text)
        text, self._pending = text[:start], text[start:]
        return self._messages.sub(self._with_host, super().feed(text))

    def finish(self) -> bytes:
        # The connection may have ended in the middle of a record.
        self._pending = b""
        return super().finish()

    def _take(self, match: re.Match[bytes]) -> bytes:
        self._tell(from_line(match[1], HostReport))
        return b""

    def _start_of_record(self, text: bytes) -> int:
        """Returns the index at which an incomplete record begins; the end of the text if there is none."""
        found = text.find(self._mark)
        if found >= 0 and len(text) - found < _MAX_RECORD_BYTES:
            return found
        lengths = range(min(len(self._mark), len(text)), 0, -1)
        return len(text) - next((length for length in lengths if text.endswith(self._mark[:length])), 0)
