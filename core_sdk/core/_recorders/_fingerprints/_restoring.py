"""Watches how a script restores itself: what it loads, and which files it reads."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_MAX_FILES = 200
_LIBRARIES = (sys.prefix, sys.base_prefix, "/proc/", "/sys/", "/dev/")
_MAX_KEYS = 3


class RestoreWatcher:
    """Notes, until it is closed, what of a restore may be a mistake."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._files: dict[str, None] = {}
        self._undo: Callable[[], None] = lambda: None

    def close(self) -> None:
        self._undo()

    def notes(self) -> list[str]:
        return [*self._notes, *_chosen_by_name(self._files)]

    def note_opened(self, path: Any, mode: Any) -> None:
        is_read = not isinstance(mode, str) or not set(mode) & set("wax+")
        if is_read and isinstance(path, str | os.PathLike) and len(self._files) < _MAX_FILES:
            text = str(path)
            if not text.startswith(_LIBRARIES) and not text.endswith((".py", ".pyc", ".so")):
                self._files[text] = None

    def watch_modules(self, module_class: Any) -> None:
        """Watches what modules are loaded with."""
        original = module_class.load_state_dict

        def load_state_dict(module: Any, *arguments: Any, **options: Any) -> Any:
            result = original(module, *arguments, **options)
            for kind, keys in (("missing", result.missing_keys), ("unexpected", result.unexpected_keys)):
                if keys:
                    shown = ", ".join(keys[:_MAX_KEYS]) + (", …" if len(keys) > _MAX_KEYS else "")
                    self._notes.append(
                        f"{type(module).__qualname__} was loaded with {len(keys)} {kind} keys (strict=False): {shown}"
                    )
            return result

        module_class.load_state_dict = load_state_dict

        def undo() -> None:
            module_class.load_state_dict = original

        self._undo = undo


def _chosen_by_name(files: Iterable[str]) -> list[str]:
    """Returns a note for each file, or directory, that is the newest of its siblings by name, and not by number."""
    opened = {path for file in map(Path, files) for path in (file, file.parent)}
    notes = []
    for path in sorted(each for each in opened if re.search(r"\d", each.name) and each.parent.is_dir()):
        pattern = re.compile(re.sub(r"\d+", r"\\d+", re.escape(path.name)))
        siblings = [each.name for each in path.parent.iterdir() if pattern.fullmatch(each.name)]
        by_number = max(siblings, key=lambda name: [int(each) for each in re.findall(r"\d+", name)], default="")
        is_only_one = not any(path.parent / each in opened for each in siblings if each != path.name)
        if is_only_one and path.name == max(siblings, default="") != by_number:
            notes.append(f"{path.name} was read, the newest by name; the newest by number is {by_number}")
    return notes
