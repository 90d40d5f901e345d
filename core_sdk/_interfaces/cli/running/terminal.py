"""The user's terminal, and the signals that a command in the foreground hands on to its attempt.

The terminal stays in its normal mode, so that a killed command leaves it as it was.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from core_sdk._execution.agent.starting import Agent, Screen
from core_sdk._ground.environment import is_usr1_stop
from core_sdk._machine.processes import STOPS, CaughtSignals

_STDIN = 0
_STDOUT = 1
_CHUNK_BYTES = 4096
_PAUSE_S = 0.2
_END_OF_INPUT = b"\x04"


def open_screen() -> tuple[int, Screen]:
    """Returns a descriptor from which to read what the user is to see, and the screen to which an agent writes it."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    size = os.get_terminal_size(_STDOUT)
    return source, Screen(sink, size.lines, size.columns)


def in_background(work: Callable[..., None], *arguments: object) -> None:
    """Starts a thread that does the work for as long as this process lives."""
    threading.Thread(target=work, args=arguments, name=f"core-sdk-{work.__name__}", daemon=True).start()


def hand_on_lines(agent: Agent) -> None:
    """Sends the agent what the user types, line by line, for ever."""
    # In the background, reading would stop this process. With the signal blocked it fails instead.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN})
    while True:
        try:
            text = os.read(_STDIN, _CHUNK_BYTES)
        except OSError:
            time.sleep(_PAUSE_S)
            continue
        agent.type(text or _END_OF_INPUT)
        if not text:
            time.sleep(_PAUSE_S)  # Ctrl-D, or a terminal that is gone and gives nothing else any more


def catch_signals() -> CaughtSignals:
    """Keeps signals for `hand_on_signals` from now on, including a terminal's signals for Ctrl-Z and a new size."""
    caught = CaughtSignals()
    for number in (signal.SIGTSTP, signal.SIGWINCH) if os.isatty(_STDOUT) else (signal.SIGTSTP,):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # a signal that has a handler comes to `caught`
    return caught


def hand_on_signals(
    caught: CaughtSignals, agent: Agent, tell_stop: Callable[[int], None], hang_up: Callable[[], None]
) -> None:
    """Hands on what `caught` receives, and has received before, for ever.

    Of a signal that asks for an end it tells `tell_stop`. At a SIGHUP it calls `hang_up`.
    """
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
            case signal.SIGHUP:  # the terminal is closed
                hang_up()
            case int(number):
                agent.signal(number)
                if number in STOPS:
                    tell_stop(number)


def _has_terminal() -> bool:
    """Returns whether there is a terminal that may send Ctrl-C to this process."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
