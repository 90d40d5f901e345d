"""When each token was used last: kept apart from the people, since it changes with each request."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import read_regular, write_atomically

_PAUSE_S = 60.0


class LastUses:
    """Remembers them, and writes them down once a minute: after a kill, a minute of them is lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times = _read(path)
        self._next_write = time.monotonic() + _PAUSE_S
        self._is_changed = False

    def of(self, credential_id: str) -> float | None:
        return self._times.get(credential_id)

    def note(self, credential_id: str) -> None:
        self._times[credential_id] = round(time.time())
        self._is_changed = True

    def write_if_due(self, valid: frozenset[str]) -> None:
        """Writes them down if that is due, without those of credentials that are gone. Raises `OSError`."""
        if self._is_changed and time.monotonic() >= self._next_write:
            self.write(valid)

    def write(self, valid: frozenset[str]) -> None:
        self._next_write = time.monotonic() + _PAUSE_S
        self._times = {one: when for one, when in self._times.items() if one in valid}
        self._is_changed = False
        write_atomically(self._path, msgspec.json.encode(self._times), is_durable=False)


def _read(path: Path) -> dict[str, float]:
    try:
        return json_decoder(dict[str, float])(read_regular(path))
    except (OSError, msgspec.MsgspecError):  # it is a convenience: a lab is served without it
        return {}
