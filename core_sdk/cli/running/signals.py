"""The signals that reach a command in the foreground, handed on to what it has started."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from core_sdk.environment import is_usr1_stop


class SignalRelay:
    """Catches signals from construction to the end of this process; those before `attach` are kept until then."""

    def __init__(self) -> None:
        self.num_received = 0
        """How often somebody has asked for an end."""
        self._send: Callable[[int], None] | None = None
        self._pending: list[int] = []
        handlers = dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT), self._hand_on)
        handlers[signal.SIGTSTP] = self._stop
        # Slurm sends Ctrl-C to all processes of a step, and two of them would break off what a script does after one.
        handlers[signal.SIGINT] = self._note if is_usr1_stop() and not _has_terminal() else self._hand_on
        if is_usr1_stop():
            handlers[signal.SIGUSR1] = self._hand_on
        for number, handler in handlers.items():
            # What is ignored already (`nohup`, a job in the background) stays so, for the script as well. Handlers, in
            # contrast to SIG_IGN, are not inherited by the script.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def attach(self, send: Callable[[int], None]) -> None:
        self._send = send
        while self._pending:
            send(self._pending.pop(0))

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        self.num_received += 1
        if self._send is None:
            self._pending.append(number)
        else:
            self._send(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.num_received += 1

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the script stops with us, and goes on with us."""
        if self._send is not None:
            self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._send is not None:
            self._send(signal.SIGCONT)


def _has_terminal() -> bool:
    """Whether a terminal may send us Ctrl-C."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
