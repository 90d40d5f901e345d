"""The statements of ranks about how they end: files in a directory that their launcher has told them."""

from __future__ import annotations

import json
from pathlib import Path

_STOPPED = "stopped"
_COMPLETED = "completed"
_LEFT = "left-"
_TRIAL = "trial.json"


class RankStatements:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def is_stopped(self) -> bool:
        """Returns whether a rank has said that it stops on request."""
        return (self._directory / _STOPPED).exists()

    def is_completed(self) -> bool:
        """Returns whether a rank has said that its training is complete."""
        return (self._directory / _COMPLETED).exists()

    def left(self) -> set[int]:
        """Returns the ranks that have said that they have left their Context without an error."""
        return {int(path.name.removeprefix(_LEFT)) for path in self._directory.glob(f"{_LEFT}*")}

    def error_path(self, rank: int) -> Path:
        """Returns the file into which torch's `record` writes the exception that a rank raises."""
        return self._directory / f"error-{rank}.json"

    def recorded_traceback(self, rank: int) -> bytes:
        """Returns the traceback in that file; empty if there is none."""
        try:
            told = json.loads(self.error_path(rank).read_bytes())
            return str(told["message"]["extraInfo"]["py_callstack"]).encode(errors="replace")
        except (OSError, ValueError, KeyError, TypeError):
            return b""

    def copy_error(self, rank: int, code: int, to: Path) -> None:
        """Copies the exception in that file to another one, with the rank's exit status, as torchrun does.

        Does nothing if the rank has not used `record`. Raises `OSError`.
        """
        try:
            told = json.loads(self.error_path(rank).read_bytes())
        except (FileNotFoundError, ValueError):
            return
        if isinstance(told, dict) and isinstance(message := told.get("message"), dict):
            message["errorCode"] = code
        to.write_text(json.dumps(told))

    def trial_word(self) -> str:
        """Returns what the ranks have said about the trial that they have begun; empty if they have begun none.

        After that their statements count, and not only how they end.
        """
        try:
            return (self._directory / _TRIAL).read_text()
        except FileNotFoundError:
            return ""

    def take_trial_word(self, word: str) -> None:
        """Passes a statement about a trial on to the ranks that start here next."""
        (self._directory / _TRIAL).write_text(word)

    def forget(self) -> None:
        """Forgets all statements but that about the trial, since the ranks are started again."""
        for name in (_STOPPED, _COMPLETED, f"{_LEFT}*"):
            for path in self._directory.glob(name):
                path.unlink(missing_ok=True)
