"""The trials of tries that wait for their first attempt, or run: a small file each, in `<home>/tries`.

The file of a trial says what its start needs. It is made before the trial, and is removed when the trial has ended, so
that whoever serves the line after a kill finds all that was left.

Where several machines see the home, each has a line of its own: a try runs on the machine on which it was begun, where
its environment, and what was linked into its code, are known to be.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import decode_file, encode_file
from core_sdk._home import Home


class TrialInLine(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/tries/<trial>.json`."""

    format: int = 1
    trial_id: int
    host: str
    """The machine on which its try was begun, and which runs it."""
    author: str
    num_slots: int
    is_started: bool = False
    is_stopped_if_behind: bool = False
    num_lost: int = 0
    """The number of its attempts whose agents were killed."""


def line_directory(home: Home) -> Path:
    return home.root / "tries"


def this_host() -> str:
    return os.uname().nodename


def server_lock_path(home: Home) -> Path:
    """Returns the file that the process which serves this machine's line holds locked."""
    return line_directory(home) / f"{this_host()}.lock"


def write_waiting(home: Home, waiting: TrialInLine) -> None:
    make_directory(line_directory(home), exist_ok=True)
    write_atomically(_path(home, waiting.trial_id), encode_file(waiting))


def forget(home: Home, trial_id: int) -> None:
    _path(home, trial_id).unlink(missing_ok=True)


def find_in_line(home: Home, trial_id: int) -> TrialInLine | None:
    """Returns a trial that waits or runs, on whatever machine; None if it does neither."""
    with contextlib.suppress(OSError, ValueError):  # it was just removed
        return decode_file(read_regular(_path(home, trial_id)), TrialInLine)
    return None


def host_of_wait(home: Home, trial_ids: Iterable[int]) -> str:
    """Returns the machine for whose slots the first of these trials waits that does wait; empty if none does."""
    found = (find_in_line(home, trial_id) for trial_id in trial_ids)
    return next((each.host for each in found if each is not None and not each.is_started), "")


def read_line(home: Home) -> list[TrialInLine]:
    """Returns those that wait or run on this machine, in the order of their trials."""
    ids = sorted(int(path.stem) for path in line_directory(home).glob("*.json") if path.stem.isdecimal())
    found = (find_in_line(home, trial_id) for trial_id in ids)
    return [each for each in found if each is not None and each.host == this_host()]


def next_in_turn(line: Iterable[TrialInLine]) -> TrialInLine | None:
    """Returns who gets the next slots: authors take turns, so that the one with the fewest trials that run is first.

    Of several authors, and of the trials of one, the earliest trial is first.
    """
    line = list(line)
    running = Counter(each.author for each in line if each.is_started)
    waiting: Sequence[TrialInLine] = [each for each in line if not each.is_started]
    return min(waiting, key=lambda each: (running[each.author], each.trial_id), default=None)


def _path(home: Home, trial_id: int) -> Path:
    return line_directory(home) / f"{trial_id}.json"
