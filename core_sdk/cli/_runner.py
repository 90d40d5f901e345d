"""The script of one attempt: started, handed the signals that reach us, and waited for.

It writes to the attempt's log through a process that does nothing else, the output keeper: it never waits for us or
our terminal, and when we are killed it goes on and no line is lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from core_sdk.cli import _output_keeper
from core_sdk.cli._messages import say
from core_sdk.environment import HOME_VARIABLE, RUN_INFO_VARIABLE, child_variables, is_usr1_stop
from core_sdk.errors import CommandNotExecutableError, RecordDamagedError
from core_sdk.records import CommandRecord, ExitRecord
from core_sdk.tracking import TrialFolder

# Processes that the script leaves behind may keep its output open; the end of the script is the end of the attempt.
_LAST_OUTPUT_S = 2.0


class SignalRelay:
    """Hands on to the script what is sent to us, also what came before it was started; from now to our end."""

    def __init__(self) -> None:
        self.num_received = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: list[int] = []
        handlers = {signal.SIGTERM: self._forward, signal.SIGHUP: self._forward, signal.SIGINT: self._notice}
        if is_usr1_stop():
            handlers[signal.SIGUSR1] = self._forward
        for number, handler in handlers.items():
            # What is ignored already (`nohup`, a job in the background) stays so, for the script as well. Handlers, in
            # contrast to SIG_IGN, are not inherited by the script.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        while self._pending:
            process.send_signal(self._pending.pop(0))

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.num_received += 1
        if self._process is None:
            self._pending.append(number)
        else:
            self._process.send_signal(number)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        """For Ctrl-C: the terminal sends it to the script too, and we stay to see what becomes of it."""
        self.num_received += 1


def run_attempt(folder: TrialFolder, attempt: int, command: CommandRecord, relay: SignalRelay) -> int:
    """The script's exit status, -N for death by signal N, which is recorded. Raises `CommandNotExecutableError`."""
    output, keeper = _start_keeper(folder.log_path(attempt))
    try:
        process = _start(folder, attempt, command, output)
    finally:
        os.close(output)
    relay.attach(process)
    process.wait()
    # Of the last attempt, where a launcher has started its ranks anew.
    _write_exit(folder, max(folder.attempts()), process.returncode)
    with contextlib.suppress(subprocess.TimeoutExpired):
        keeper.wait(_LAST_OUTPUT_S)
    return process.returncode


def _start_keeper(log: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """The descriptor to write output to, and the process that brings it into the log."""
    output_read, output = os.pipe()
    # A stop is for the script, which still writes while it saves: the keeper inherits a mask that keeps every signal
    # from it, and ends when its input does. The session of its own keeps the terminal's job control from it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        arguments = [sys.executable, "-I", "-S", _output_keeper.__file__, str(log)]
        keeper = subprocess.Popen(
            arguments,
            stdin=output_read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(output_read)
    return output, keeper


def _start(folder: TrialFolder, attempt: int, command: CommandRecord, output: int) -> subprocess.Popen[bytes]:
    variables = {
        HOME_VARIABLE: str(folder.home_root.absolute()),
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


def _write_exit(folder: TrialFolder, attempt: int, code: int) -> None:
    try:
        told = folder.read_exit(attempt)  # by a launcher
        folder.write_exit(attempt, ExitRecord(time=time.time(), code=code, reason=told.reason if told else ""))
    except (OSError, RecordDamagedError) as error:
        say(f"the exit status {code} could not be recorded: {error}")
