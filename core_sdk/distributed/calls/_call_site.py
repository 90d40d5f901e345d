"""The line of the script that calls a collective, for the words of errors."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent import futures
from pathlib import Path, PurePath
from types import CodeType, FrameType

_NUM_CACHED = 4096
_MAX_CHARS = 200
_UNKNOWN = "an unknown place"

# What may stand between the script's own line and ours.
_NOT_THE_SCRIPT = (
    str(Path(__file__).parent.parent.parent),
    contextlib.__file__,
    threading.__file__,
    str(Path(futures.__file__).parent),
)


class CallSites:
    """The call sites of this process's collectives, as bytes for the wire. Safe to use from several threads."""

    def __init__(self) -> None:
        # The code objects are kept alive so that none other gets the id of one of them.
        self._known: dict[tuple[int, int], tuple[bytes, CodeType]] = {}

    def current_call_site(self) -> bytes:
        """Where the script is now: the innermost frame that is not ours."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_SCRIPT):
            frame = frame.f_back
        if frame is None:
            return b""
        # The instruction, not its line: that is slow to work out.
        known = self._known.get((id(frame.f_code), frame.f_lasti))
        return known[0] if known is not None else self._learn(frame)

    def _learn(self, frame: FrameType) -> bytes:
        site = _described(frame).encode("utf-8", "backslashreplace")
        if len(self._known) >= _NUM_CACHED:
            self._known.clear()
        self._known[id(frame.f_code), frame.f_lasti] = site, frame.f_code
        return site


def describe(site: bytes) -> str:
    """A call site for messages, such as `train.py:57 (evaluate)`. Takes any bytes, since they came from elsewhere."""
    text = site.decode("utf-8", "replace")
    # Nothing in it moves the reader's cursor.
    return "".join(letter if letter.isprintable() else "?" for letter in text) or _UNKNOWN


def _described(frame: FrameType) -> str:
    code = frame.f_code
    position = f"{PurePath(code.co_filename).name}:{frame.f_lineno}"
    function = code.co_qualname.replace(".<locals>", "")
    return position[-_MAX_CHARS:] + ("" if function == "<module>" else f" ({function[:_MAX_CHARS]})")
