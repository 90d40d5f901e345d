"""One host of a training, as the head sees it: a process of ssh's, or a child, and what comes from there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core_sdk.processes import exit_code
from core_sdk.processes.output import Forwarder, PrefixedLines, Stream
from launch._result import Ending
from launch._ssh._host_output import NodeLines
from launch._ssh._host_results import NodeEnding, Why
from launch._ssh._hostfile import Host, Ssh
from launch._ssh._ssh_command import why_lost, why_not_started

_PIPE_BYTES = 1 << 20
# ssh may wait for what a rank has left behind to close its output.
_LAST_OUTPUT_S = 1.0
_FAILURE = 1


class Node:
    """Used by one thread; what the host tells comes by another."""

    def __init__(
        self,
        host: Host,
        ssh: Ssh,
        argv: Sequence[str],
        variables: Mapping[str, str] | None,
        mark: str,
        forwarder: Forwarder,
        directory: Path,
        ring: Callable[[], None],
    ) -> None:
        """`directory`: where ssh's log and the pipes are. `ring`: that there is something new, for any thread."""
        self.host = host
        self.is_lost = False
        """It was there, and is gone without a word."""
        self._ssh = ssh
        self._ring = ring
        self._forwarder = forwarder
        self._log = directory / "ssh.log"
        self._record: dict[str, Any] = {}
        self._unsent = b""
        self._streams = (
            Stream(directory / "stdout", PrefixedLines(b""), forwarder.stdout),
            Stream(directory / "stderr", NodeLines(host.address, mark, self._take), forwarder.stderr),
        )
        self._process, self._stdin = _start(argv, variables, directory)
        forwarder.add(*self._streams)
        os.set_blocking(self._stdin, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        threading.Thread(target=self._await_exit, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Does not wait for a host that does not read."""
        self._unsent += line
        try:
            self._unsent = self._unsent[os.write(self._stdin, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""  # it is gone, as its exit will tell

    @property
    def is_unsettled(self) -> bool:
        """There is more to send to it, or to read from it, than it could be so far."""
        return bool(self._unsent) or self._process.poll() is not None

    def ending(self) -> NodeEnding | None:
        """None while it runs."""
        if "ended" not in self._record and self._process.poll() is None:
            return None
        # What it told last may still be in the pipe, and what its ranks wrote is to come before any last words.
        has_read_all = self._forwarder.wait_for_end(self._streams, _LAST_OUTPUT_S)
        if "ended" not in self._record and not has_read_all:
            return None  # nobody takes the head's own output, so that it does not get to read ours
        if "ended" in self._record:
            return self._ending_told(self._record["ended"], self._record["ending"])
        return NodeEnding(self.host.address, Ending(_FAILURE, tuple(self._why_silent())))

    def kill(self) -> None:
        """The connection, or the child: what runs at its other end notices."""
        self._process.kill()

    def _ending_told(self, code: int, told: dict[str, Any] | None) -> NodeEnding:
        host = self.host.address
        if told is None:
            code = exit_code(code)
            return NodeEnding(host, Ending(code, (f"{host}: the launcher ended without last words; exit code {code}",)))
        ending = Ending(told["code"], tuple(told["words"]), told["is_of_ranks"], told["is_suffered"])
        return NodeEnding(host, ending, Why.SUFFERED if ending.is_suffered else Why.CAUSE)

    def _why_silent(self) -> list[str]:
        code, log = self._process.wait(), self._read_log()
        if "refused" in self._record:
            return [f"{self.host.name}: {self._record['refused']}"]
        if "started" in self._record:
            self.is_lost = True
            return why_lost(self.host, log)
        return why_not_started(
            self.host, self._ssh, code, log, self._streams[1].last_words.tail.decode(errors="replace")
        )

    def _read_log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _take(self, record: dict[str, Any]) -> None:
        self._record |= record
        self._ring()

    def _await_exit(self) -> None:
        self._process.wait()
        self._ring()


def _start(
    argv: Sequence[str], variables: Mapping[str, str] | None, directory: Path
) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the descriptor to write to it."""
    stdin, to_stdin = os.pipe()
    outputs = [os.open(directory / name, os.O_WRONLY) for name in ("stdout", "stderr")]
    try:
        process = subprocess.Popen(
            argv,
            env=variables,
            cwd="/",
            stdin=stdin,
            stdout=outputs[0],
            stderr=outputs[1],
            # A Ctrl-C goes to all of a terminal's processes, and is the head's to hand on.
            start_new_session=True,
        )
    except BaseException:
        os.close(to_stdin)
        raise
    finally:
        for descriptor in (stdin, *outputs):
            os.close(descriptor)
    return process, to_stdin
