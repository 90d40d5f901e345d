"""Decides how an attempt has ended, in the terms of an experiment's events."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterable

from core_sdk._ground.records import AttemptOutcome
from core_sdk._home.attempts.ending import goes_back, read_end, read_settled
from core_sdk._home.attempts.setbacks import is_of_guard
from core_sdk._home.folders import TrialFolder
from core_sdk._home.states import STOP_CODES, trial_state
from core_sdk.errors import RecordDamagedError

_FIRST_OF_SIGNALS = 128
_TAIL_BYTES = 1 << 13
_MAX_WORDS = 300


def judge(
    folder: TrialFolder,
    *,
    was_asked: bool,
    was_killed: bool,
    loss: tuple[AttemptOutcome, str] | None,
    hopeless: Iterable[str],
    lost_node: str = "",
) -> tuple[AttemptOutcome, str]:
    """Returns the outcome of the newest attempt, which no longer runs, and the reason for it.

    `was_asked` says whether the master has asked it to stop, and `was_killed` whether the master has killed it since it
    did not stop. `loss` is the outcome if the attempt has ended with its machine; it counts only if no other end than a
    kill is recorded. `hopeless` are patterns of lines of output after which a failed attempt is not repeated.
    `lost_node` says in words that a node has died; an error that is recorded then only follows from that.
    """
    try:
        told, damage = folder.read_exit(max(folder.attempts())), ""
    except RecordDamagedError as error:
        told, damage = None, str(error)
    end = read_end(folder, None if told is None else told.code)
    if end.outcome is None and end.exit_code in (None, -signal.SIGKILL) and loss is not None:
        return loss
    settled = read_settled(folder)
    if settled is not None and settled.state == "CANCELED":
        return "canceled", settled.reason
    if end.outcome == "invalid_hp":
        return "invalid_hp", trial_state(end, is_running=False)[1]
    if was_killed:
        return "paused", "killed, since it did not stop in time"
    if was_asked and end.outcome is None and end.exit_code in STOP_CODES:
        return "paused", ""
    match trial_state(end, is_running=False):
        case "COMPLETED", reason:
            return "completed", reason
        case "PAUSED", reason if is_of_guard(end.stop_source) and not goes_back(folder, end.exit_code):
            return "completed", reason
        case "PAUSED", reason:
            return "paused", reason
        case "CANCELED", reason:
            return "canceled", reason
        case _ if damage:
            return "failed", damage
        case _, reason if lost_node:
            return "failed", f"{lost_node}: {reason}"
        case _, reason:
            pattern = _pattern_in_log(folder, hopeless)
            return ("failed", reason) if pattern is None else ("hopeless", f"its output has {pattern!r}: {reason}")


def read_last_words(folder: TrialFolder) -> str:
    """Returns the last line of the newest attempt's output if its command ended with a status of its own, else ""."""
    attempt = max(folder.attempts())
    with contextlib.suppress(RecordDamagedError, FileNotFoundError):
        told = folder.read_exit(attempt)
        if told is not None and 0 < told.code < _FIRST_OF_SIGNALS:
            with folder.log_path(attempt).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
            return next((line.strip()[-_MAX_WORDS:] for line in reversed(lines) if line.strip()), "")
    return ""


def _pattern_in_log(folder: TrialFolder, patterns: Iterable[str]) -> str | None:
    """Returns the first regular expression that is found in the newest attempt's output, line by line, or None."""
    searches = [(pattern, re.compile(pattern.encode()).search) for pattern in patterns]
    if not searches:
        return None
    log = folder.log_path(max(folder.attempts()))
    if not log.exists():
        return None
    with log.open("rb") as lines:
        for line in lines:
            for pattern, search in searches:
                if search(line):
                    return pattern
    return None
