"""The queue of messages on the disk: a folder for each target, with a file for each message that was not sent yet."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from core_sdk._execution.messages._targets import Message
from core_sdk._ground.alive import file_lock
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import write_atomically
from core_sdk._ground.ownership import make_directory

DIRECTORY = "messages"
_SUFFIX = ".message"
_BATCH = "batch.json"
_SENT = "sent.jsonl"
_MOST_OF_BATCH = 50
_MOST_BYTES_OF_LINE = 2000

_decode_message = json_decoder(Message)
_decode_names = json_decoder(list[str])


class Queue:
    """The messages to one target. Many processes add to it, and one at a time sends."""

    def __init__(self, home_root: Path, target: str) -> None:
        self.path = home_root / DIRECTORY / target

    def add(self, message: Message, after_s: float = 0.0) -> None:
        """Adds a message that is to be sent after so long, unless one of its identity waits. Raises `OSError`."""
        make_directory(self.path.parent, exist_ok=True)
        make_directory(self.path, exist_ok=True)
        identity = hashlib.sha256(message.identity.encode()).hexdigest()[:16]
        if not any(self.path.glob(f"*-{identity}{_SUFFIX}")):
            name = f"{time.time_ns() + int(after_s * 1e9):020d}-{identity}{_SUFFIX}"
            write_atomically(self.path / name, msgspec.json.encode(message))

    def names(self) -> list[str]:
        """Returns the names of the messages that are to be sent now, the oldest first."""
        return sorted(path.name for path in self.path.glob(f"*{_SUFFIX}") if _due(path) <= time.time())

    def batch(self) -> tuple[str, list[Message]]:
        """Returns the messages that are sent together, and the identity of that.

        After a kill these are the same ones: nobody can tell whether they have arrived. They stay the batch until
        `sent`.
        """
        path = self.path / _BATCH
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError, ValueError):
            names = _decode_names(path.read_bytes())
        if not names:
            names = self.names()[:_MOST_OF_BATCH]
            write_atomically(path, msgspec.json.encode(names))
        messages = []
        for name in names:
            with contextlib.suppress(FileNotFoundError, ValueError):
                messages.append(_decode_message((self.path / name).read_bytes()))
        return hashlib.sha256("".join(names).encode()).hexdigest()[:32], messages

    def sent(self) -> None:
        """Removes the batch and its messages, which have arrived."""
        path = self.path / _BATCH
        with contextlib.suppress(FileNotFoundError, ValueError):
            for name in _decode_names(path.read_bytes()):
                (self.path / name).unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def clear(self) -> None:
        for path in (*self.path.glob("*"),):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()


def targets_waiting(home_root: Path) -> list[str]:
    """Returns the targets for which messages wait that are to be sent now."""
    return sorted({path.parent.name for path in _waiting(home_root) if _due(path) <= time.time()})


def next_due(home_root: Path) -> float | None:
    """Returns the time at which the next message is to be sent, in seconds since the Unix epoch; None without any."""
    return min(map(_due, _waiting(home_root)), default=None)


def _waiting(home_root: Path) -> Iterator[Path]:
    return (home_root / DIRECTORY).glob(f"*/*{_SUFFIX}")


def _due(path: Path) -> float:
    number = path.name.partition("-")[0]
    return int(number) / 1e9 if number.isdigit() else 0.0


class SentMessage(msgspec.Struct, frozen=True):
    """A line of what was sent."""

    time: float
    """The time at which it was sent, or given up."""
    target: str
    """The name of the target."""
    problem: str
    """Why it was given up; empty if it was sent."""
    message: Message


_decode_sent = json_decoder(SentMessage)


def read_sent(home_root: Path, since: float, most: int) -> list[SentMessage]:
    """Returns what was sent since then, the newest first, but not more than `most`. Raises `OSError`."""
    try:
        with (home_root / DIRECTORY / _SENT).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most * _MOST_BYTES_OF_LINE))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in reversed(lines):
        with contextlib.suppress(ValueError):  # the first one may be cut
            found.append(_decode_sent(line))
    return [each for each in found if each.time >= since][:most]


def note_sent(home_root: Path, target: str, messages: Sequence[Message], problem: str = "") -> None:
    """Keeps, for people, what was sent to a target, or was given up with a problem."""
    path = home_root / DIRECTORY / _SENT
    now = time.time()
    lines = [msgspec.json.encode(SentMessage(now, target, problem, each)) + b"\n" for each in messages]
    with contextlib.suppress(OSError), file_lock(path.with_suffix(".lock")), path.open("ab") as file:
        path.chmod(0o600)
        file.write(b"".join(lines))
