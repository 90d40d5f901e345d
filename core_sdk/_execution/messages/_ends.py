"""Posts how an attempt of a trial has ended, for the agent beside it."""

from __future__ import annotations

import contextlib

from core_sdk._execution.messages._posting import post_of_trial
from core_sdk._execution.messages._targets import MessageKind
from core_sdk._home.attempts.ending import read_end, read_settled
from core_sdk._home.folders import TrialFolder
from core_sdk._home.states import trial_state
from core_sdk.errors import CoreSDKError

_KIND_OF: dict[str, MessageKind] = {"ERROR": "failed", "PAUSED": "paused", "CANCELED": "paused", "COMPLETED": "ended"}


def post_end(folder: TrialFolder) -> None:
    """Posts how the trial's newest attempt has ended."""
    if not (folder.home_root / "notify.json").exists():
        return
    with contextlib.suppress(CoreSDKError, OSError, ValueError):
        state, reason = trial_state(read_end(folder, None), False, read_settled(folder))
        if kind := _KIND_OF.get(state):
            post_of_trial(folder, kind, str(max(folder.attempts())), reason)
        if state == "PAUSED":
            post_of_trial(folder, "not_resumed", str(max(folder.attempts())), reason)
        if state == "COMPLETED":
            from core_sdk._execution.messages._best import post_best  # needs the index

            post_best(folder)
