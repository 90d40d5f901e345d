"""Starts attempts that nobody watches: for `--detach`, for the web page, and for programs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from core_sdk._execution.agent.starting import Agent
from core_sdk._home.attempts.starting import AttemptStart
from core_sdk.errors import CommandError


def start_in_background(agent: Agent, decide: Callable[[], AttemptStart]) -> AttemptStart:
    """Lets the agent start the attempt that `decide` returns, and returns when its command has been started.

    The attempt outlives this process, and its output is kept. Raises what `decide` raises, or
    `CommandError`.
    """
    try:
        start = decide()
        try:
            agent.start(start)
        except CommandError:
            start.withdraw()
            raise
    finally:
        agent.close()
        # Our system keeps the traces of a child that has ended until somebody waits for it.
        threading.Thread(target=agent.process.wait, name="core-sdk-reap", daemon=True).start()
    return start
