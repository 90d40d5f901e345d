"""The lines in which a script that nobody supervises says which trial it is, and how it has ended."""

from __future__ import annotations

import contextlib
import sys

from core_sdk._ground.records import generated_name
from core_sdk._home.attempts.claiming import Attempt
from core_sdk._home.attempts.continuation import describe_end
from core_sdk._home.attempts.ending import read_end, read_settled
from core_sdk._home.states import trial_state, with_losses
from core_sdk.errors import CoreSDKError


class Announcements:
    """Tells a person on stderr which trial a script is, and how it has ended. Failures to print are ignored."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @classmethod
    def begun(cls, attempt: Attempt) -> Announcements:
        """Says which trial it is, where its records are, and how to see them."""
        record = attempt.record
        which = _which(attempt)
        if attempt.number > 1:
            which += f", attempt {attempt.number}, from step {attempt.info.trial.steps_completed}"
        home = attempt.folder.home_root
        _say(f"{which}, recorded in {home}; `core-sdk trial describe {record.trial_id}` shows it")
        return cls(attempt)

    def end(self) -> None:
        """Says how the trial has ended, as lists do, and what to do next."""
        folder = self._attempt.folder
        with contextlib.suppress(CoreSDKError, OSError):  # the folder was removed, say, of which others speak
            end = read_end(folder, None)
            state, reason = trial_state(end, False, read_settled(folder))
            reason = with_losses(reason, end.num_dropped, end.drop_reason)
            trial_id = folder.trial_id
            if state == "COMPLETED":
                next_step = f": `core-sdk trial metrics {trial_id} --plot` draws what it has reported"
                _say(f"trial {trial_id} {describe_end(folder, state, reason)}{next_step}")
            elif folder.read_command() is None:
                because = f" ({reason})" if reason else ""
                next_step = "with init(job_id=…), the next start goes on where one has stopped"
                _say(f"trial {trial_id} is {state}{because}; {next_step}")
            else:
                _say(f"trial {trial_id} {describe_end(folder, state, reason)}")


def tell_of_writer(attempt: Attempt) -> None:
    """Tells a person on stderr as whom a script that nobody supervises reports, and about which trial."""
    _say(f"{attempt.writer!r} writes to {_which(attempt)}, recorded in {attempt.folder.home_root}")


def _which(attempt: Attempt) -> str:
    record = attempt.record
    return f"trial {record.trial_id} ({record.name or generated_name(record.trial_id, record.created)})"


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr is closed
        if sys.stderr is not None:
            print(f"core-sdk: {text}", file=sys.stderr, flush=True)
