"""The targets of messages, and which messages each wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._ground.records import decode_file, encode_file
from core_sdk.errors import HomeError

MessageKind = Literal[
    "failed", "stalled", "went_back", "paused", "not_resumed", "ended", "best", "experiment", "alert", "disk"
]
KINDS: tuple[MessageKind, ...] = get_args(MessageKind)


class NotifyTarget(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    """Apprise's, which is a secret."""
    kinds: tuple[MessageKind, ...] = KINDS
    experiment: str = ""
    """Only of this experiment, by its name."""
    trial: int | None = None
    """Only of this trial."""
    remind_after_h: float = 12.0
    """The hours after which it is told of a trial that was stopped and not resumed."""

    @property
    def shown_url(self) -> str:
        """The URL without anything secret."""
        return f"{self.url.partition('://')[0]}://********"

    def wants(self, message: Message) -> bool:
        is_meant = self.trial in (None, message.trial_id) and self.experiment in ("", message.experiment)
        return message.kind in self.kinds and is_meant


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has happened, once."""

    identity: str
    kind: MessageKind
    time: float
    title: str
    body: str = ""
    trial_id: int | None = None
    experiment: str = ""
    attempt: int = 0
    """The attempt after which the trial must still be paused when this is sent, if it is a reminder."""


class _Targets(msgspec.Struct):
    """`<home>/notify.json`, which only its owner can read."""

    format: int = 1
    targets: list[NotifyTarget] = []


def read_targets(home_root: Path) -> list[NotifyTarget]:
    """Returns the targets. Raises `HomeError` for a file that cannot be read."""
    try:
        return decode_file(read_regular(home_root / _NAME), _Targets).targets
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise HomeError(f"the targets of messages in {home_root / _NAME} cannot be read: {error}") from error


def add_target(home_root: Path, target: NotifyTarget) -> None:
    """Adds a target, or replaces the one of its name."""
    with file_lock(home_root / _LOCK):
        others = [each for each in read_targets(home_root) if each.name != target.name]
        _write(home_root, [*others, target])


def remove_target(home_root: Path, name: str) -> bool:
    """Removes a target, and returns whether there was one."""
    with file_lock(home_root / _LOCK):
        targets = read_targets(home_root)
        _write(home_root, [each for each in targets if each.name != name])
    return any(each.name == name for each in targets)


_NAME = "notify.json"
_LOCK = "notify.lock"


def _write(home_root: Path, targets: Sequence[NotifyTarget]) -> None:
    write_atomically(home_root / _NAME, encode_file(_Targets(targets=list(targets))))
