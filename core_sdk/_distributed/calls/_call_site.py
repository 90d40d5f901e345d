"""One collective call, and the line of the script that makes it, which errors name."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent import futures
from pathlib import Path, PurePath
from types import CodeType, FrameType

import msgspec

from core_sdk._distributed.transport._frames import CollectiveOperation, Frame

_NUM_CACHED = 4096
_MAX_CHARS = 200
_UNKNOWN = "an unknown place"

# Frames in these files may be between the script's line and ours.
_NOT_THE_SCRIPT = (
    str(Path(__file__).parent.parent.parent),
    contextlib.__file__,
    threading.__file__,
    str(Path(futures.__file__).parent),
)


class CollectiveCall(msgspec.Struct, frozen=True):
    """A collective call of one rank."""

    operation: int
    number: int
    """Counts all calls of the group, from 1."""
    site: bytes
    is_patient: bool = False
    """Whether the call goes on waiting after its time-out."""

    def __str__(self) -> str:
        return f"{CollectiveOperation.NAMES[self.operation]} (its call {self.number}, at {describe(self.site)})"

    def is_met_by(self, frame: Frame) -> bool:
        """Returns whether another rank's frame belongs to the same call. The call sites may differ."""
        return frame.operation == self.operation and frame.sequence == self.number


class CallSites:
    """The lines of the script that make calls, as bytes for the wire. Several threads may use it."""

    def __init__(self) -> None:
        # The code objects are kept alive so that their ids are not used again.
        self._known: dict[tuple[int, int], tuple[bytes, CodeType]] = {}

    def current_call_site(self, num_ours: int = 0) -> bytes:
        """Returns the script's current line: the line of the innermost frame that is not ours.

        The innermost `num_ours` frames are skipped without a look.
        """
        frame: FrameType | None = sys._getframe(1 + num_ours)
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_SCRIPT):
            frame = frame.f_back
        if frame is None:
            return b""
        # The key is the instruction, since finding its line is slow.
        known = self._known.get((id(frame.f_code), frame.f_lasti))
        return known[0] if known is not None else self._learn(frame)

    def _learn(self, frame: FrameType) -> bytes:
        site = _described(frame).encode("utf-8", "backslashreplace")
        if len(self._known) >= _NUM_CACHED:
            self._known.clear()
        self._known[id(frame.f_code), frame.f_lasti] = site, frame.f_code
        return site


def describe(site: bytes) -> str:
    """Returns a call site for messages, such as `train.py:57 (evaluate)`.

    Accepts any bytes, since another rank may have sent them.
    """
    text = site.decode("utf-8", "replace")
    # Control characters could move the cursor of the reader's terminal.
    return "".join(letter if letter.isprintable() else "?" for letter in text) or _UNKNOWN


def _described(frame: FrameType) -> str:
    code = frame.f_code
    position = f"{PurePath(code.co_filename).name}:{frame.f_lineno}"
    function = code.co_qualname.replace(".<locals>", "")
    return position[-_MAX_CHARS:] + ("" if function == "<module>" else f" ({function[:_MAX_CHARS]})")
