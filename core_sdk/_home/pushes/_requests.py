"""Requests that people make in a workspace to the home that has sent a trial. Both keep the same file.

The workspace gives a request to the home until the home has told what came of it. The home notes a request before it
carries it out, and so carries it out at most once, whichever side is killed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._ground.records import decode_file, encode_file
from core_sdk.errors import RecordDamagedError

OPEN_S = 86400.0
"""The time for which a request may wait. It is then carried out no more."""
_MOST_KEPT = 1000

ActionOutcome = Literal["done", "refused"]


class ActionRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A verb that somebody wants to be done to a trial."""

    request_id: str
    trial_id: int
    """The trial, by its number where the request is kept."""
    verb: str
    by: str
    """The person who asks."""
    time: float
    arguments: dict[str, Any] = {}
    home: str = ""
    """The identity of the home that has sent the trial; empty in that home."""
    sender: str = ""
    """The person whose program has sent it; empty in that home."""
    outcome: ActionOutcome | None = None
    message: str = ""
    """The reason for a refusal."""
    answer: Any = None
    """The answer of the verb, as JSON."""

    @property
    def state(self) -> Literal["waits", "done", "refused", "expired"]:
        if self.outcome is not None:
            return self.outcome
        return "waits" if time.time() - self.time < OPEN_S else "expired"


class ActionRequestsRecord(msgspec.Struct, kw_only=True):
    """`<home>/requests.json`: the requests of the last days, and the newest before them; the oldest first."""

    format: int = 1
    requests: list[ActionRequest] = []


class ActionRequests:
    """The requests of a home or a workspace. Any thread and process may use it. Its methods raise `OSError`, too."""

    def __init__(self, home_root: Path) -> None:
        self._path = home_root / "requests.json"
        self._mark: tuple[int, int, int] | None = None
        self._read: list[ActionRequest] = []

    def all(self) -> list[ActionRequest]:
        """Returns the requests; the file is read only if it has changed. Raises `RecordDamagedError`."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return []
        if (mark := (found.st_ino, found.st_mtime_ns, found.st_size)) != self._mark:
            try:
                self._read = decode_file(read_regular(self._path), ActionRequestsRecord).requests
            except ValueError as error:
                raise RecordDamagedError(self._path, str(error)) from error
            self._mark = mark
        return self._read

    def add(self, request: ActionRequest) -> ActionRequest:
        """Keeps a request, unless the same one is there or is still open. Returns the one that is there then."""
        with file_lock(self._path.with_suffix(".lock")):
            known = self.all()
            same = (one for one in known if one.request_id == request.request_id or _asks_the_same(one, request))
            if (found := next(same, None)) is not None:
                return found
            # One of which either side has still to hear must stay, or it would be lost, or carried out once more.
            old = [one for one in known[: 1 - _MOST_KEPT] if time.time() - one.time < 2 * OPEN_S]
            self._write([*old, *known[1 - _MOST_KEPT :], request])
        return request

    def settle(self, request_id: str, outcome: ActionOutcome, message: str, answer: Any) -> None:
        """Keeps what came of a request. The first outcome stays."""
        with file_lock(self._path.with_suffix(".lock")):
            known = self.all()
            settled = [
                msgspec.structs.replace(one, outcome=outcome, message=message, answer=answer)
                if one.request_id == request_id and one.outcome is None
                else one
                for one in known
            ]
            if settled != known:
                self._write(settled)

    def _write(self, requests: list[ActionRequest]) -> None:
        write_atomically(self._path, encode_file(ActionRequestsRecord(requests=requests)))


def _asks_the_same(one: ActionRequest, other: ActionRequest) -> bool:
    """Returns whether a request that is open asks for the same as another one."""
    return one.state == "waits" and (one.trial_id, one.verb, one.arguments) == (
        other.trial_id,
        other.verb,
        other.arguments,
    )
