"""Workers that are kept from one `fit()` to the next of the same program, since starting them costs a second."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core_sdk.environment import worker_variables
from core_sdk.errors import WorkerError
from core_sdk.train._configs import ScalingConfig
from core_sdk.workers import Engine, WorkerGroup, this_worker

_STAMPS = "core_sdk.train.modules"


class Likeness(NamedTuple):
    """All that the workers have from the program, or were asked to have: others cannot take their place."""

    scaling: str
    backend: str | None
    timeout_s: float
    directory: Path
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    variables: Mapping[str, str]

    @classmethod
    def of_this_program(cls, scaling: ScalingConfig, backend: str | None, timeout_s: float) -> Likeness:
        return cls(
            repr(scaling), backend, timeout_s, Path.cwd(), tuple(sys.path), tuple(sys.argv), worker_variables({})
        )


class Workers:
    """A group, and the engine that it uses. Of several that were kept, the last one stays."""

    _kept: Workers | None = None

    def __init__(self, likeness: Likeness, engine: Engine, group: WorkerGroup) -> None:
        self.likeness = likeness
        self.engine = engine
        self.group = group

    @classmethod
    def taken(cls, likeness: Likeness) -> Workers | None:
        """Those that were kept, if they are like that, still live, and have loaded modules as they are on the disk."""
        kept, cls._kept = cls._kept, None
        if kept is None:
            return None
        try:
            if kept.likeness == likeness and all(kept.group.run(has_current_modules)):
                return kept
        except WorkerError:
            pass
        kept.close()
        return None

    def keep(self) -> None:
        """Lets the next `fit()` take them; they are closed when the program ends."""
        try:
            self.group.run(note_modules)
        except WorkerError:
            self.close()
            return
        if Workers._kept is not None:
            Workers._kept.close()
        Workers._kept = self
        # The last one registered is called first: before Ray ends its connection.
        atexit.unregister(close_kept)
        atexit.register(close_kept)

    def close(self, grace_s: float = 5.0) -> None:
        self.group.close(grace_s)


def close_kept() -> None:
    if Workers._kept is not None:
        Workers._kept.close()
        Workers._kept = None


def note_modules() -> None:
    """In a worker: remembers of which files the modules of the user's are, and gives up the memory of GPUs."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
    this_worker().state[_STAMPS] = _stamps()


def has_current_modules() -> bool:
    """In a worker: whether these files are as they were."""
    stamps: dict[str, float] = this_worker().state.get(_STAMPS, {})
    return all(_stamp(path) == stamp for path, stamp in stamps.items())


def _stamps() -> dict[str, float]:
    installed = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix})
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return {file: _stamp(file) for file in files if isinstance(file, str) and not file.startswith(installed)}


def _stamp(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0
