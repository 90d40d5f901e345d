"""The command that is checked, and what it becomes when it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = "{dir}"
"""Stands in a command for the directory of its own that each training has."""
RANKS = "{ranks}"
"""Stands in a command for the number of ranks of the attempt."""


@dataclass(frozen=True)
class CheckedCommand:
    """A command, as it is started first and as it goes on. Raises `ValueError` if it cannot be checked so."""

    words: Sequence[str]
    resume_with: Sequence[str] = ()
    """Arguments that are appended when the training goes on."""
    metrics_from: str = ""
    """A file of JSON lines, or a directory with such files or TensorBoard's; empty if it reports to a Context."""
    ranks: Sequence[int] = ()
    """The number of ranks of each attempt; the last one holds for all further ones."""

    def __post_init__(self) -> None:
        if self.ranks and not any(RANKS in word for word in self.words):
            raise ValueError(f"the command must have {RANKS} where the number of ranks belongs")
        if self.metrics_from and DIRECTORY not in self.metrics_from:
            raise ValueError(
                f"all trainings would write into {self.metrics_from}: let the command write below {DIRECTORY}, which "
                f"becomes a directory of each training's own, and read the metrics from {DIRECTORY}/…"
            )

    @property
    def has_own_checkpoints(self) -> bool:
        """Whether it may go on by files that Core SDK does not know."""
        return bool(self.resume_with or self.metrics_from)

    def argv(self, attempt: int, directory: Path) -> list[str]:
        """Returns the command of an attempt, counted from 1. Pure."""
        words = [*self.words, *(self.resume_with if attempt > 1 else ())]
        ranks = str(self.ranks[min(attempt, len(self.ranks)) - 1]) if self.ranks else RANKS
        return [word.replace(DIRECTORY, str(directory)).replace(RANKS, ranks) for word in words]

    def metrics_path(self, directory: Path) -> Path:
        """Returns the file or the directory into which a training writes its metrics. Pure."""
        return Path(self.metrics_from.replace(DIRECTORY, str(directory)))
