"""The level of a line of output, as the usual formats of logging write it."""

from __future__ import annotations

import re
from typing import Literal

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
LEVELS: tuple[LogLevel, ...] = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_LEVEL_OF: dict[str, LogLevel] = {**{level: level for level in LEVELS}, "WARN": "WARNING", "FATAL": "CRITICAL"}
_SEEN = 200
"""The part of a line, in characters, in which a level is looked for."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_RANK = re.compile(r"\[rank=(\d{1,9})\] ")
_NAME = r"(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_LEVEL = re.compile(
    rf"\s*{_NAME}\b"  # "ERROR: …", "WARNING:root:…", "INFO     …"
    rf"|\s*[\[(<\d][^a-z]*?\b{_NAME}\b"  # after a time or brackets: "2026-01-31 12:00:00,123 ERROR …", "[INFO] …"
    rf"|.*? - {_NAME} - |.*?[\[|] *{_NAME} *[\]|]"  # between marks, after other fields: "… - ERROR - …", "…[ERROR]…"
)
_TRACEBACK = re.compile(r"[\s|+]*(?:Exception Group )?Traceback \(most recent call last\):")
_BETWEEN_TRACEBACKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class LevelReader:
    """Tells the levels of lines that are given in their order; each rank's tracebacks are ERROR to their last line."""

    def __init__(self) -> None:
        self._in_traceback: set[str] = set()
        """The ranks that are writing one; "" stands for lines without a rank."""

    def level(self, line: str) -> LogLevel:
        """Returns the level of the next line; INFO for a line that names none."""
        prefix = _RANK.match(line)
        rank = prefix[1] if prefix else ""
        text = _ESCAPES.sub("", line[prefix.end() if prefix else 0 :][: 2 * _SEEN])[:_SEEN]
        if _TRACEBACK.match(text):
            self._in_traceback.add(rank)
            return "ERROR"
        if rank in self._in_traceback:
            if not text[:1].isspace() and text.strip() != "" and not text.startswith("|"):
                self._in_traceback.discard(rank)  # the exception itself
            return "ERROR"
        if text.startswith(_BETWEEN_TRACEBACKS):
            return "ERROR"
        found = _LEVEL.match(text)
        if found is None:
            return "INFO"
        name: str = next(filter(None, found.groups()))
        return _LEVEL_OF[name]
