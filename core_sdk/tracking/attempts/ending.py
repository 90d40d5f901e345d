"""The end of an attempt that was started with a command, recorded by its agent."""

from __future__ import annotations

import time

from core_sdk.errors import CoreSDKError
from core_sdk.records import ExitRecord
from core_sdk.tracking.attempts.provisional import settle_unnamed
from core_sdk.tracking.home import TrialFolder


def record_end(folder: TrialFolder, code: int) -> list[str]:
    """Records the exit status, and gives the trial its experiment if the script has named none.

    Returns what could not be recorded, in words.
    """
    problems = []
    try:
        # A launcher that starts its ranks anew begins further attempts: the status is that of the last one.
        attempt = max(folder.attempts())
        told = folder.read_exit(attempt)  # by a launcher
        folder.write_exit(attempt, ExitRecord(time=time.time(), code=code, reason=told.reason if told else ""))
    except (CoreSDKError, OSError) as error:
        problems.append(f"the exit status {code} could not be recorded: {error}")
    try:
        settle_unnamed(folder)
    except (CoreSDKError, OSError) as error:
        problems.append(f"the experiment of trial {folder.trial_id} stays without an entry by its name: {error}")
    return problems
