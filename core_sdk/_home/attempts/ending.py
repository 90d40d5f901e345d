"""Records and reads the end of an attempt that was started with a command."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Dropped, Ended, ExitRecord, Settled, StopAcknowledged
from core_sdk._home.attempts.provisional import settle_unnamed
from core_sdk._home.attempts.setbacks import is_of_guard, read_troubles
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.journal import find_records, read_journal
from core_sdk._home.states import AttemptEnd, error_told, trial_state
from core_sdk.errors import CoreSDKError, RecordDamagedError

if TYPE_CHECKING:
    from core_sdk._home.rows import TrialState

# `Ended` is a journal's last record, and its error text is bounded.
_TAIL_BYTES = 1 << 17


def end_attempt(folder: TrialFolder, attempt: int, lock: AliveLock, code: int, reason: str = "") -> list[str]:
    """Records the exit status and releases the lock, as every process does that has executed an attempt.

    Records nothing once this host was taken for dead: the trial then continues elsewhere, in another attempt. Returns
    what could not be recorded, in words.
    """
    is_home_gone = not folder.home_root.exists()  # which `record_end` says
    is_in_charge = is_home_gone or lock.is_at(folder.supervised_path(attempt))
    problems = record_end(folder, code, reason) if is_in_charge else []
    lock.release()
    return problems


def record_end(folder: TrialFolder, code: int, reason: str = "") -> list[str]:
    """Records the exit status, and gives the trial its experiment if the script has named none.

    Returns what could not be recorded, in words.
    """
    problems = []
    try:
        # A launcher that starts its ranks again begins further attempts: the last one's status counts.
        attempt = max(folder.attempts())
        if not reason and (told := folder.read_exit(attempt)) is not None:  # by a launcher
            reason = told.reason
        folder.write_exit(attempt, ExitRecord(time=time.time(), code=code, reason=reason))
    except (CoreSDKError, OSError) as error:
        problems.append(f"the exit status {code} could not be recorded: {error}")
    try:
        settle_unnamed(folder)
    except (CoreSDKError, OSError) as error:
        problems.append(f"the experiment of trial {folder.trial_id} stays without an entry by its name: {error}")
    return problems


def read_end(folder: TrialFolder, code: int | None) -> AttemptEnd:
    """Reads how the trial's newest attempt has ended, without an index.

    `code` is its exit status, if that is known; otherwise the recorded one counts. Only the status is known if the
    script did not use Core SDK, or was killed.
    """
    # A launcher that starts its ranks again begins further attempts.
    attempt = max(folder.attempts())
    recorded = None
    with contextlib.suppress(RecordDamagedError):
        recorded = folder.read_exit(attempt)
    end = AttemptEnd(exit_code=recorded.code if code is None and recorded is not None else code)
    journal = folder.journal_path(attempt)
    if not journal.exists():
        return end
    # The first line may be cut: it is skipped as a bad one.
    tail = read_journal(journal, offset=max(0, journal.stat().st_size - _TAIL_BYTES))
    for record in (record for chunk in tail for record in chunk.records):
        if isinstance(record, StopAcknowledged):
            end = msgspec.structs.replace(end, stop_source=record.source)
        elif isinstance(record, Ended):
            end = msgspec.structs.replace(end, outcome=record.outcome, error=record.error)
    num_dropped, drop_reason = _read_losses(folder, attempt)
    return msgspec.structs.replace(
        end, error=error_told(end.error, recorded), num_dropped=num_dropped, drop_reason=drop_reason
    )


def goes_back(folder: TrialFolder, code: int | None) -> bool:
    """Returns whether another attempt follows the newest one, which has ended, from before its trouble.

    None follows at once if somebody else has asked for its end: whoever resumes the trial then lets it go back.
    """
    attempt = max(folder.attempts())
    if not any(trouble.action == "go_back" for _, trouble in read_troubles(folder, [attempt])):
        return False
    settled, end = read_settled(folder), read_end(folder, code)
    is_asked = folder.stop_path(attempt).exists() or not (end.stop_source is None or is_of_guard(end.stop_source))
    state, _ = trial_state(end, is_running=False, settled=settled)
    return settled is None and not is_asked and state != "CANCELED" and end.outcome != "invalid_hp"


def _read_losses(folder: TrialFolder, attempt: int) -> tuple[int, str]:
    """Returns how many records the attempt's ranks and its writers could not write, and why."""
    num_dropped, reason = 0, ""
    sources = (0, *(source for number, source in folder.other_journals() if number == attempt))
    for source in sources:
        for found in find_records(folder.journal_path(attempt, source), ['"dropped"']):
            if isinstance(found, Dropped):
                num_dropped, reason = num_dropped + found.count, found.reason
    return num_dropped, reason


def read_settled(folder: TrialFolder) -> Settled | None:
    """Returns what was settled about the trial since its newest attempt began, or None."""
    settled = None
    for found in find_records(folder.changes_path, ['"settled"']):
        if isinstance(found, Settled):
            settled = found
    return settled if settled is not None and settled.attempt >= max(folder.attempts(), default=0) else None


def further_trials(folder: TrialFolder, newest_before: int) -> dict[int, tuple[TrialState, str]]:
    """Returns the state, and its reason, of each trial after `newest_before` that the program of this one has begun."""
    found = {}
    home = Home(folder.home_root)
    for trial_id in (each for each in home.trial_ids() if each > newest_before):
        further = home.folder(trial_id)
        with contextlib.suppress(CoreSDKError, OSError):  # it was deleted, or is damaged
            if further.read_record().started_by == folder.trial_id:
                is_running = further.running_attempt() is not None
                found[trial_id] = trial_state(read_end(further, None), is_running, read_settled(further))
    return found
