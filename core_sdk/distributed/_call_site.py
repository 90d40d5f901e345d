"""Where the script calls a collective, in a form that ranks can send and compare."""

from __future__ import annotations

import os
import sys
import threading
import time
import tokenize
from collections.abc import Sequence
from pathlib import Path, PurePath
from types import CodeType, FrameType
from typing import NamedTuple, TypeVar

from core_sdk.distributed._branches import are_exclusive

Key = TypeVar("Key")
Value = TypeVar("Value")

_NUM_CACHED = 4096
_NUM_FRAMES_SENT = 32
# More than are sent: our own frames are among them.
_NUM_FRAMES_WALKED = 64
_SEPARATOR = "\0"
_CUT = "…"
_UNKNOWN = "an unknown place"

_OUR_DIRECTORY = str(Path(__file__).parent.parent) + os.sep
_LIBRARY = str(Path(threading.__file__).parent) + os.sep
# What stands between a script and the start of its process or thread, and differs where the script does not.
_MACHINERY = (
    "<frozen importlib",
    "<frozen runpy",
    _LIBRARY + "runpy.py",
    _LIBRARY + "threading.py",
    _LIBRARY + "contextlib.py",
    _LIBRARY + f"concurrent{os.sep}futures{os.sep}",
)


class CallSites:
    """The call sites of this process's collectives, and which of them go together. Safe to use from several threads.

    A call site is the stack of the script's frames, outermost first, as bytes for the wire.
    """

    def __init__(self) -> None:
        self._made_at = time.time()
        # The code objects are kept alive so that none other gets the id of one of them.
        self._sites: dict[tuple[int, ...], tuple[bytes, Sequence[CodeType]]] = {}
        self._judged: dict[tuple[bytes, bytes], bool] = {}

    def current_call_site(self) -> bytes:
        """Where the script is now; the same on all ranks that run the same lines of the same files."""
        frame: FrameType | None = sys._getframe(1)
        where: list[int] = []
        add = where.append
        for _ in range(_NUM_FRAMES_WALKED):
            # The instruction, not its line: that is slow to work out.
            add(id(frame.f_code))  # type: ignore[union-attr]
            add(frame.f_lasti)  # type: ignore[union-attr]
            frame = frame.f_back  # type: ignore[union-attr]
            if frame is None:
                break
        key = tuple(where)
        known = self._sites.get(key)
        return known[0] if known is not None else self._learn(key, sys._getframe(1))

    def may_meet(self, site_a: bytes, site_b: bytes) -> bool:
        """Whether ranks that are at these places may be in the same collective; True where that cannot be told."""
        if site_a == site_b:
            return True
        pair = (site_a, site_b)
        may = self._judged.get(pair)
        if may is None:
            may = _may_meet(site_a, site_b, self._made_at)
            _remember(self._judged, pair, may)
        return may

    def _learn(self, key: tuple[int, ...], innermost: FrameType) -> bytes:
        stack = _walk(innermost)
        site = _encode(stack)
        _remember(self._sites, key, (site, [frame.f_code for frame in stack]))
        return site


def describe(site: bytes) -> str:
    """The innermost place, for messages: `train.py:57 (evaluate)`. Takes any bytes."""
    try:
        stack = _Stack.decode(site)
    except ValueError:
        return _UNKNOWN
    return str(stack.places[-1])


def describe_both(site_a: bytes, site_b: bytes) -> tuple[str, str]:
    """Two call sites, for one message; their callers are told where the innermost places read alike."""
    one, other = describe(site_a), describe(site_b)
    if one != other or site_a == site_b or one == _UNKNOWN:
        return one, other
    for place_a, place_b in zip(_Stack.decode(site_a).places, _Stack.decode(site_b).places, strict=False):
        if str(place_a) != str(place_b):
            return f"{one}, from {place_a}", f"{other}, from {place_b}"
    return one, other


class _Place(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        function = self.function.replace(".<locals>", "")
        position = f"{PurePath(self.file).name}:{self.line}"
        text = position if function == "<module>" else f"{position} ({function})"
        # It may have come over the network: nothing in it moves the reader's cursor.
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    def is_in_function_of(self, other: _Place) -> bool:
        """Hosts may keep the script under different directories."""
        is_same_file = self.file == other.file or PurePath(self.file).parts[-2:] == PurePath(other.file).parts[-2:]
        return is_same_file and self.function == other.function


class _Stack(NamedTuple):
    """The script's places, outermost first; some outer ones are missing where it is cut."""

    places: Sequence[_Place]
    is_cut: bool

    @classmethod
    def decode(cls, site: bytes) -> _Stack:
        """Raises `ValueError` for bytes that are no call site."""
        fields = site.decode("utf-8", "replace").split(_SEPARATOR)
        is_cut = fields[0] == _CUT
        fields = fields[is_cut:]
        if not fields or len(fields) % 3:
            raise ValueError("this is no call site")
        thirds = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
        return cls([_Place(file, int(line), function) for file, line, function in thirds], is_cut)


def _walk(innermost: FrameType) -> list[FrameType]:
    """The stack from the inside out, as far as it is looked at."""
    frames = [innermost]
    while len(frames) < _NUM_FRAMES_WALKED and (outer := frames[-1].f_back) is not None:
        frames.append(outer)
    return frames


def _encode(stack: Sequence[FrameType]) -> bytes:
    frames = [frame for frame in stack if not _is_machinery(frame)]
    # A call may come from nowhere but ourselves: from a thread of ours, say.
    kept = [frame for frame in frames if not frame.f_code.co_filename.startswith(_OUR_DIRECTORY)] or frames or stack
    is_cut = len(kept) > _NUM_FRAMES_SENT or stack[-1].f_back is not None
    fields = [_CUT] if is_cut else []
    for frame in reversed(kept[:_NUM_FRAMES_SENT]):
        fields += frame.f_code.co_filename, str(frame.f_lineno), frame.f_code.co_qualname
    return _SEPARATOR.join(fields).encode("utf-8", "backslashreplace")


def _is_machinery(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_MACHINERY)


def _may_meet(site_a: bytes, site_b: bytes, made_at: float) -> bool:
    try:
        parting = _where_they_part(_Stack.decode(site_a), _Stack.decode(site_b))
        if parting is None:
            return True
        place_a, place_b = parting
        return are_exclusive(_read_source((place_a.file, place_b.file), made_at), place_a.line, place_b.line)
    except (OSError, SyntaxError, ValueError, LookupError, RecursionError, MemoryError, SystemError):
        # No call sites, no source, no Python, too deep for its parser (which says MemoryError), or not what runs.
        # CPython 3.11 says SystemError if another thread parses at the same time (gh-106905).
        return True


def _where_they_part(stack_a: _Stack, stack_b: _Stack) -> tuple[_Place, _Place] | None:
    """The outermost places that differ, if they are lines of one function."""
    if (stack_a.is_cut or stack_b.is_cut) and not _begin_alike(stack_a, stack_b):
        return None
    for place_a, place_b in zip(stack_a.places, stack_b.places, strict=False):
        if not place_a.is_in_function_of(place_b):
            return None
        if place_a.line != place_b.line:
            return place_a, place_b
    return None


def _begin_alike(stack_a: _Stack, stack_b: _Stack) -> bool:
    """Whether the remaining parts of cut stacks can be laid side by side."""
    outermost_a, outermost_b = stack_a.places[0], stack_b.places[0]
    are_on_one_line = outermost_a.is_in_function_of(outermost_b) and outermost_a.line == outermost_b.line
    return stack_a.is_cut and stack_b.is_cut and are_on_one_line


def _read_source(files: Sequence[str], made_at: float) -> str:
    """The first file of these that is here, as it was when the script started.

    Raises `OSError` where there is none, or where it has been edited since: its lines are not those that run.
    """
    path = next((Path(file) for file in files if Path(file).is_file()), Path(files[0]))
    if path.stat().st_mtime > made_at:
        raise FileNotFoundError(f"{path} has changed since it was run")
    with tokenize.open(path) as file:
        return file.read()


def _remember(known: dict[Key, Value], key: Key, value: Value) -> None:
    """Forgets all when there is too much: a script that comes back to the same lines never gets there."""
    if len(known) >= _NUM_CACHED:
        known.clear()
    known[key] = value
