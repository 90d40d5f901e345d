"""Files of a run: those that `save()` names, and those in its directory."""

from __future__ import annotations

import glob
import logging
import shutil
from pathlib import Path

from core_sdk.core import Context

logger = logging.getLogger("core_sdk.compat")

_POLICIES = ("live", "now", "end")


class SavedFiles:
    """Keeps the newest state of files in checkpoints: one for each call of `save()`, and one for the directory."""

    def __init__(self, context: Context | None, root: Path, run_id: str) -> None:
        self._context = context
        self._directory = root / "wandb" / f"run-{run_id}" / "files"
        self._patterns: dict[str, tuple[Path, str]] = {}
        """The base of the paths that a checkpoint holds, and the policy, of each pattern."""
        self._stored: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {}
        """The checkpoint of each pattern, and the size and the time of its files."""

    def directory(self) -> Path:
        if not self._directory.exists():
            self._directory.mkdir(parents=True)
            self._patterns[str(self._directory / "**")] = self._directory, "end"
        return self._directory.absolute()

    def save(self, pattern: str, base_path: object, policy: str, step: int) -> list[str]:
        """Stores the files that a pattern names, unless only at the end, and returns their paths."""
        if policy not in _POLICIES:
            raise ValueError(f"save(policy={policy!r}): it must be one of {', '.join(_POLICIES)}")
        base = Path(str(base_path)) if base_path is not None else Path(pattern).parent
        self._patterns[pattern] = base, policy
        if policy != "end" and self._context is not None:
            self._store(pattern, step)
        return [str(path) for path in _files(pattern)]

    def store_changed(self, step: int) -> None:
        """Stores the files that are new or have changed since, but those that were only to be saved at once."""
        for pattern, (_, policy) in self._patterns.items():
            if policy != "now" and self._context is not None:
                self._store(pattern, step)

    def _store(self, pattern: str, step: int) -> None:
        files = _files(pattern)
        states = {str(path): _state(path) for path in files}
        earlier, known = self._stored.get(pattern, (None, {}))
        if not files or states == known or self._context is None:
            return
        checkpoints, base = self._context.checkpoint, self._patterns[pattern][0]
        metadata = {"steps_completed": step, "saved": pattern}
        with checkpoints.store_path(metadata) as (directory, storage_id):
            for path in files:
                target = directory / (path.relative_to(base) if path.is_relative_to(base) else path.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
        self._stored[pattern] = storage_id, states
        if earlier is not None:
            checkpoints.release(earlier)


def _files(pattern: str) -> list[Path]:
    paths = map(Path, glob.glob(pattern, recursive=True))  # noqa: PTH207 - an absolute pattern, perhaps
    return sorted(path for path in paths if path.is_file())


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
