"""The user's terminal. It stays in its normal mode, so that a killed command leaves it as it was."""

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
    """A descriptor from which to read what the user is to see, and what an agent needs to write it."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    size = os.get_terminal_size(_STDOUT)
    return source, Screen(sink, size.lines, size.columns)


def hand_on_lines(agent: Agent) -> None:
    """Starts a thread that sends the agent what the user types, line by line."""
    threading.Thread(target=_type, args=[agent], name="core-sdk-keyboard", daemon=True).start()


def _type(agent: Agent) -> None:
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
