"""Jobs that are watched: Slurm is asked for all of them at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.commands import JobState
from core_sdk._home.folders import TrialFolder
from core_sdk._home.streams import size_bytes

ASK_S = 12.0
"""The time between two questions, five a minute."""
SOON_S = 3.0
"""The time after which Slurm is asked about a job of which the home says that it may have ended."""
# How long what a job has written may take to come through the file system.
_LATE_S = 15.0
# How long an attempt that holds its lock may write nothing until a job that Slurm does not know counts as gone.
_SILENT_S = 600.0


class WatchedJob:
    """The newest job of a trial."""

    def __init__(self, folder: TrialFolder, job_id: str = "") -> None:
        self.folder = folder
        self.job_id = job_id
        """Empty until it is known."""
        self.state: JobState | None = None
        """None until Slurm was asked."""
        self.over_at: float | None = None
        """The monotonic time since which Slurm calls it over."""
        self._sizes: Sequence[int | None] = ()
        self._grown_at = 0.0

    def hear(self, state: JobState | None) -> str:
        """Takes the state, None if Slurm does not know the job. Returns in words what has changed; else empty.

        Slurm may not know a job that runs: sites keep answers for a while. While its attempt lives, it is not over.
        """
        if state is None and self._lives():
            return ""
        before, self.state = self.state, state or JobState("gone", "Slurm does not know it any more")
        if not self.state.is_over:
            self.over_at = None
        elif self.over_at is None:
            self.over_at = time.monotonic()
        if self.state == before or self.state.is_over:
            return ""
        if self.state.is_waiting:
            advice = f". It cannot start so: `scancel {self.job_id}` withdraws it" if self.state.cannot_start else ""
            return f"{self.words}{advice}"
        is_new = before is None or before.is_waiting
        return f"job {self.job_id} runs on {self.state.nodes}" if is_new else ""

    def _lives(self) -> bool:
        """Returns whether the newest attempt holds its lock, and has written something lately.

        The lock alone does not tell, since a shared file system may hold the lock of a dead node for ever.
        """
        if (attempt := self.folder.running_attempt()) is None:
            return False
        sizes = [size_bytes(path(attempt)) for path in (self.folder.journal_path, self.folder.log_path)]
        if sizes != self._sizes:
            self._sizes, self._grown_at = sizes, time.monotonic()
        return time.monotonic() - self._grown_at < _SILENT_S

    @property
    def words(self) -> str:
        """The job and its state, in words."""
        return f"job {self.job_id} {self.state.words if self.state else 'waits'}"

    @property
    def is_long_over(self) -> bool:
        """Whether what the job has written must have come by now."""
        return self.over_at is not None and time.monotonic() - self.over_at > _LATE_S

    @property
    def end(self) -> str:
        """How the job has ended without an attempt that has recorded its own end, in words."""
        state = self.state or JobState("gone")
        if state.name == "CANCELLED":
            return f"Slurm's job {self.job_id} was canceled with scancel, and not by Core SDK"
        because = f" ({state.reason})" if state.reason else ""
        ended = f"Slurm's job {self.job_id} has ended as {state.name}{because}"
        if self.folder.attempts():
            return ended
        if last := self._last_words():
            return f"{ended} before the training began: {last}"
        return (
            f"{ended}, and nothing of it has reached the home {self.folder.home_root}, which must lie on a file system "
            "that all nodes share, at the same path (CORE_SDK_HOME)"
        )

    def _last_words(self) -> str:
        """Returns the last line that the job has printed, as when a node lacks the Python that runs the job."""
        try:
            lines = (self.folder.path / f"slurm-{self.job_id}.out").read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def ask(jobs: Iterable[WatchedJob]) -> list[str]:
    """Asks Slurm for the states of all jobs. Returns in words what has changed. Raises `SlurmError`."""
    known = [job for job in jobs if job.job_id]
    states = commands.states(job.job_id for job in known) if known else {}
    return [words for job in known if (words := job.hear(states.get(job.job_id)))]
