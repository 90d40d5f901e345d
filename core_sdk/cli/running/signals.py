"""Hands the signals that a command in the foreground receives on to its attempt."""

from __future__ import annotations

import os
import signal
import threading

from core_sdk.agent.starting import Agent
from core_sdk.environment import is_usr1_stop
from core_sdk.processes import CaughtSignals

_STDOUT = 1


def catch_signals() -> CaughtSignals:
    """From now on signals are kept for `hand_on`, also what a terminal says of Ctrl-Z and of its size."""
    caught = CaughtSignals()
    for number in (signal.SIGTSTP, signal.SIGWINCH) if os.isatty(_STDOUT) else (signal.SIGTSTP,):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # a signal that has a handler comes to `caught`
    return caught


def hand_on(caught: CaughtSignals, agent: Agent) -> None:
    """Starts a thread that does it, also for the signals that `caught` has received before."""
    threading.Thread(target=_hand_on, args=[caught, agent], name="core-sdk-signals", daemon=True).start()


def _hand_on(caught: CaughtSignals, agent: Agent) -> None:
    # Slurm sends Ctrl-C to all processes of a step, and a second one would break off what the script does after it.
    is_sent_to_all = is_usr1_stop() and not _has_terminal()
    while True:
        match caught.wait(None):
            case signal.SIGINT if is_sent_to_all:
                pass
            case signal.SIGTSTP:  # Ctrl-Z: the script stops with us, and goes on with us
                agent.signal(signal.SIGSTOP)
                # It stops the process, and this thread at once, which must not reach the next line before.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                agent.signal(signal.SIGCONT)
            case signal.SIGWINCH:
                size = os.get_terminal_size()
                agent.resize(size.lines, size.columns)
            case int(number):
                agent.signal(number)


def _has_terminal() -> bool:
    """Whether there is a terminal that may send us Ctrl-C."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
