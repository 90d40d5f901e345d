"""Resumes a trial for somebody who does not watch it: the web page, or a program."""

from __future__ import annotations

import threading

from core_sdk.agent.starting import Agent
from core_sdk.errors import CommandError
from core_sdk.tracking import HomeTracker
from core_sdk.tracking.attempts.starting import Start, resume


def resume_in_background(tracker: HomeTracker, trial_id: int) -> Start:
    """Starts the trial's next attempt as `core-sdk trial resume` does, and returns when its script has been started.

    The attempt outlives this process, and its output is kept. Raises what `resume` raises, `ExperimentStateError` for a
    trial of a submitted experiment that has not ended, or `CommandNotExecutableError`.
    """
    folder = tracker.home.trial(trial_id)
    tracker.check_steered_alone(trial_id)
    agent = Agent()
    try:
        start = resume(folder)
        try:
            agent.start(start, stdin=None)
        except CommandError:
            start.withdraw()
            raise
    finally:
        agent.close()
        # Our system keeps the traces of a child that has ended until somebody waits for it.
        threading.Thread(target=agent.process.wait, name="core-sdk-reap", daemon=True).start()
    return start
