"""The person's terminal, which stays in its normal mode: a command that is killed leaves it as it was."""

from __future__ import annotations

import os
import signal
import threading
import time

from core_sdk.agent.starting import Agent, Screen

_STDIN = 0
_STDOUT = 1
_CHUNK_BYTES = 4096
_PAUSE_S = 0.2
_END_OF_INPUT = b"\x04"


def open_screen() -> tuple[int, Screen]:
    """Where to read what the person is to see, and what an agent needs to write it."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    size = os.get_terminal_size(_STDOUT)
    return source, Screen(sink, size.lines, size.columns)


def hand_on_lines(agent: Agent) -> None:
    """From now on, by a thread of its own: what the person types, a line at a time."""
    threading.Thread(target=_type, args=[agent], name="core-sdk-keyboard", daemon=True).start()


def _type(agent: Agent) -> None:
    # In the background the terminal would stop us: it refuses instead, and the person types for somebody else.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN})
    while True:
        try:
            text = os.read(_STDIN, _CHUNK_BYTES)
        except OSError:
            time.sleep(_PAUSE_S)
            continue
        agent.type(text or _END_OF_INPUT)
        if not text:
            time.sleep(_PAUSE_S)  # Ctrl-D; or the terminal's own end, which would be read again and again
