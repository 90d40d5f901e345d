"""The log of who did what: a line of JSON for each change, each sign-in and each refusal of a change."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path

import msgspec

from core_sdk._ground.files import opened, write_whole
from core_sdk._interfaces.lab.people import SECRET

_QUIET_S = 60.0
"""A program that records is logged once in this time, and not at each request."""
_MOST_QUIET = 10_000


class Deed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log."""

    time: float
    person: str
    by: str
    """The id of the token, session or link; `proxy`, or `command` for the command line of the server's machine."""
    what: str
    """The method and the address, or what a command did. No secret is in it."""
    status: int = 0
    """That of the answer."""
    address: str = ""
    """The address from which it was asked; of a proxy, the own address of that."""


class AuditLog:
    """Appends to the file, which others may rename at any time. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._quiet_until: dict[tuple[str, str], float] = {}

    def write(self, person: str, by: str, what: str, status: int = 0, address: str = "") -> None:
        """Appends a line by one write. Raises `OSError`."""
        told = re.sub(SECRET, "…", what).encode(errors="backslashreplace").decode()  # an address may hold anything
        deed = Deed(time.time(), person, by, told, status, address)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with self._lock, opened(self._path, flags, mode=0o600) as descriptor:
            write_whole(descriptor, msgspec.json.encode(deed) + b"\n")

    def write_seldom(self, person: str, by: str, what: str, status: int, address: str) -> None:
        """Appends a line unless there is one of the same a minute ago."""
        now = time.monotonic()
        if len(self._quiet_until) > _MOST_QUIET:
            self._quiet_until.clear()
        if self._quiet_until.get((by, what), 0.0) <= now:
            self._quiet_until[by, what] = now + _QUIET_S
            self.write(person, by, what, status, address)
