"""The private directory of one launch on one node, and the guardian that ends the launch if the launcher cannot."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from core_sdk._ground.environment import Mark
from core_sdk._ground.environment.names import LAUNCH_DIR_VARIABLE
from core_sdk._ground.files import write_atomically
from core_sdk._ground.records import ExitRecord, encode_file
from core_sdk._machine.processes import Guardian, RankStatements


class LaunchDirectory:
    """The private directory of a launch. Closing removes it.

    The environment of all processes of the launch has its path: they write there what they tell the launcher, and the
    guardian finds them by the mark that contains it.
    """

    def __init__(self, given: Path | None = None) -> None:
        """`given` is a new directory for it, which a head has made."""
        # A short path, since the paths of sockets in it are limited to about a hundred bytes.
        self.path = (given or Path(tempfile.mkdtemp(prefix="core-sdk-launch-"))).resolve()
        self._lock = os.open(self.path, os.O_RDONLY)
        # Locked, so that systemd's cleaner of old temporary files spares it: a training may take weeks.
        with contextlib.suppress(OSError):  # some network file systems cannot lock directories
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        try:
            self.mark = Mark.of(self.path)
            self.guardian = Guardian(self.path, str(self.mark))
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        self.variables = {LAUNCH_DIR_VARIABLE: str(self.path), **self.mark.variables}
        """The variables of all processes of the launch."""
        self.statements = RankStatements(self.path)
        self._is_abandoned = False
        self._num_meetings = 0

    def __enter__(self) -> LaunchDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def new_meeting_place(self) -> Path:
        """Makes a new directory, in which the ranks of one start find each other."""
        self._num_meetings += 1
        place = self.path / f"ranks-{self._num_meetings}"
        place.mkdir(mode=0o700)
        return place

    def take_trial_word(self, word: str) -> None:
        """Passes on what ranks of another node have said about the trial to the ranks that start here next."""
        begun = json.loads(word) | {"pid": 0, "parent_pid": os.getpid(), "exit_path": ""}
        self.statements.take_trial_word(json.dumps(begun))

    def record_exit(self, code: int, reason: str) -> str | None:
        """Records the exit in the attempt that the ranks have begun, if any. Keeps an existing record.

        Returns what went wrong, or None.
        """
        try:
            begun = json.loads(self.statements.trial_word() or "{}")
            if path := begun.get("exit_path"):
                record = ExitRecord(time=time.time(), code=code, reason=reason)
                write_atomically(Path(path), encode_file(record), overwrite=False)
        except FileExistsError:
            return None  # another node's launcher has recorded it
        except (OSError, ValueError) as error:
            return f"how the ranks ended could not be recorded: {error}"
        return None

    def close(self) -> None:
        """Removes the directory. Does nothing after `abandon`."""
        if not self._is_abandoned:
            shutil.rmtree(self.path, ignore_errors=True)
            self.guardian.dismiss()
            os.close(self._lock)

    def abandon(self) -> None:
        """Leaves the processes and the directory to the guardian."""
        self._is_abandoned = True
        self.guardian.end_all()
        os.close(self._lock)
