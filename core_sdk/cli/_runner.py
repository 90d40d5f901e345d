"""One attempt in the foreground: starts its script, shows its output, and waits for its end.

The script writes straight to the attempt's log, a file: it never waits for us, and when we are killed it goes on and
no line is lost. We show what the log gains.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from core_sdk.cli._command import CommandNotExecutableError
from core_sdk.cli._follow import Follower, following
from core_sdk.cli._messages import say
from core_sdk.environment import HOME_VARIABLE, RUN_INFO_VARIABLE, child_variables
from core_sdk.records import CommandRecord, ExitRecord
from core_sdk.tracking import TrialFolder

_STDOUT = 1


def run_attempt(folder: TrialFolder, attempt: int, command: CommandRecord) -> int:
    """The script's exit status, -N for death by signal N. Raises `CommandNotExecutableError`."""
    log = folder.log_path(attempt)
    with _relayed_signals() as relay:
        process = _start(folder, attempt, command, log)
        relay.attach(process)
        with following(log, _STDOUT) as follower:
            _show_until_end(follower, process)
    _write_exit(folder, attempt, process.returncode)
    return process.returncode


def _start(folder: TrialFolder, attempt: int, command: CommandRecord, log: Path) -> subprocess.Popen[bytes]:
    variables = {
        HOME_VARIABLE: str(folder.home.root.absolute()),
        RUN_INFO_VARIABLE: str(folder.run_info_path(attempt).absolute()),
        # Its output is a file: without this it would appear in blocks, and the last one die with a kill.
        "PYTHONUNBUFFERED": "1",
    }
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
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
    finally:
        os.close(output)


def _show_until_end(follower: Follower, process: subprocess.Popen[bytes]) -> None:
    ended = threading.Event()

    def wait() -> None:
        process.wait()
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
