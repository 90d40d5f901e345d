"""The kept output of attempts, as `trial logs` prints it: bytes as they are."""

from __future__ import annotations

import time
from collections.abc import Callable

from core_sdk.cli._follow import following
from core_sdk.errors import CoreSDKError
from core_sdk.tracking import TrialFolder

_STDOUT = 1


class NoLogError(CoreSDKError):
    def __init__(self, trial_id: int, attempt: int | None) -> None:
        what = f"trial {trial_id}" if attempt is None else f"attempt {attempt} of trial {trial_id}"
        super().__init__(
            f"no output of {what} was kept: `core-sdk run` and `core-sdk trial resume` keep that of what they start."
        )


def print_logs(folder: TrialFolder, *, attempt: int | None, tail: int | None, follow: bool) -> None:
    """All attempts one after the other, or one; `tail` is the number of lines of the last one. Raises `NoLogError`."""
    attempts = [number for number in folder.attempts() if attempt in (None, number)]
    kept = [number for number in attempts if folder.log_path(number).exists()]
    if not kept:
        raise NoLogError(folder.trial_id, attempt)
    for number in kept if tail is None else kept[-1:]:
        with following(folder.log_path(number), _STDOUT, tail=tail) as follower:
            if follow and number == kept[-1]:
                follower.copy_until(_has_ended(folder, number))
            else:
                follower.copy()


def _has_ended(folder: TrialFolder, attempt: int) -> Callable[[float], bool]:
    def has_ended(timeout_s: float) -> bool:
        if not folder.is_running(attempt):
            return True
        time.sleep(timeout_s)
        return False

    return has_ended
