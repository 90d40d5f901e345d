"""One attempt in the foreground: starts its script, shows its output, and waits for its end.

The script writes to the attempt's log through a process that does nothing else, the output keeper: it never waits for
us or our terminal, and when we are killed it goes on and no line is lost. We show what the log gains.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from core_sdk.cli import _output_keeper
from core_sdk.cli._command import CommandNotExecutableError
from core_sdk.cli._follow import Follower, following
from core_sdk.cli._messages import say
from core_sdk.environment import HOME_VARIABLE, RUN_INFO_VARIABLE, child_variables, is_usr1_stop
from core_sdk.records import CommandRecord, ExitRecord
from core_sdk.tracking import TrialFolder

_STDOUT = 1
# Processes that the script leaves behind may keep its output open; the end of the script is the end of the attempt.
_LAST_OUTPUT_S = 2.0


def run_attempt(folder: TrialFolder, attempt: int, command: CommandRecord) -> int:
    """The script's exit status, -N for death by signal N. Raises `CommandNotExecutableError`."""
    log = folder.log_path(attempt)
    with _relayed_signals() as relay:
        output, keeper = _start_keeper(log)
        try:
            process = _start(folder, attempt, command, output)
        finally:
            os.close(output)
        relay.attach(process)
        with following(log, _STDOUT) as follower:
            _show_until_end(follower, process, keeper)
    # Of the last attempt, where a launcher has started its ranks anew.
    _write_exit(folder, max(folder.attempts()), process.returncode)
    return process.returncode


def _start_keeper(log: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """The descriptor to write output to, and the process that brings it into the log."""
    log.touch(mode=0o600)
    output_read, output = os.pipe()
    try:
        # The session of its own keeps Ctrl-C and the terminal's end from it; it ends when its input does.
        arguments = [sys.executable, "-I", "-S", _output_keeper.__file__, str(log)]
        keeper = subprocess.Popen(
            arguments,
            stdin=output_read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.close(output_read)
    return output, keeper


def _start(folder: TrialFolder, attempt: int, command: CommandRecord, output: int) -> subprocess.Popen[bytes]:
    variables = {
        HOME_VARIABLE: str(folder.home.root.absolute()),
        RUN_INFO_VARIABLE: str(folder.run_info_path(attempt).absolute()),
        # Its output is no terminal: without this it would appear in blocks, and the last one die with a kill.
        "PYTHONUNBUFFERED": "1",
    }
    try:
        return subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=child_variables(command.environment, **variables),
            stdout=output,
            stderr=output,
        )
    except OSError as error:
        raise CommandNotExecutableError(command.argv[0], error.strerror or str(error)) from error


def _show_until_end(follower: Follower, process: subprocess.Popen[bytes], keeper: subprocess.Popen[bytes]) -> None:
    ended = threading.Event()

    def wait() -> None:
        process.wait()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(_LAST_OUTPUT_S)
        ended.set()

    threading.Thread(target=wait, name="core-sdk-wait", daemon=True).start()
    try:
        follower.copy_until(ended.wait)
    except OSError:
        # Whoever read our output has gone (`| head`, a closed terminal). The training has not.
        ended.wait()


def _write_exit(folder: TrialFolder, attempt: int, code: int) -> None:
    try:
        folder.write_exit(attempt, ExitRecord(time=time.time(), code=code))
    except OSError as error:
        say(f"the exit status {code} could not be recorded: {error}")


class _SignalRelay:
    """Hands on to the script what is sent to us, also what came before it was started."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: list[int] = []

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        while self._pending:
            process.send_signal(self._pending.pop(0))

    def forward(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._pending.append(number)
        else:
            self._process.send_signal(number)

    def ignore(self, number: int, frame: FrameType | None) -> None:
        """For Ctrl-C: the terminal sends it to the script too, and we stay to see what becomes of it."""


@contextlib.contextmanager
def _relayed_signals() -> Iterator[_SignalRelay]:
    relay = _SignalRelay()
    handlers = {signal.SIGTERM: relay.forward, signal.SIGHUP: relay.forward, signal.SIGINT: relay.ignore}
    if is_usr1_stop():
        handlers[signal.SIGUSR1] = relay.forward
    previous = {}
    for number, handler in handlers.items():
        # What is ignored already (`nohup`, a job in the background) stays so, for the script as well. Handlers, in
        # contrast to SIG_IGN, are not inherited by the script.
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, handler)
    try:
        yield relay
    finally:
        for number, handler_before in previous.items():
            signal.signal(number, handler_before)
