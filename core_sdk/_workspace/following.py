"""Sends trials while they are recorded, until they have ended and all of them is in their workspaces.

A workspace that is away is asked again, after pauses that grow to five minutes, for as long as it takes. Meanwhile only
the home's disk is needed.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.environment import WorkspaceSettings
from core_sdk._home.folders import Home
from core_sdk._home.pushes import PushRecord, end_push, find_login, pusher_lock, wanted_pushes
from core_sdk._workspace.actions.acting import CarryOut, Hands
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pushed, Pusher
from core_sdk._workspace.searches import GoingSearches
from core_sdk.errors import CoreSDKError, WorkspaceRefusedError

_EVERY_S = 1.0
_IDLE_S = 2.0
_LONGEST_PAUSE_S = 300.0
_LOOK_S = 5.0
"""The longest time for which a trial waits that is to be sent to a workspace which is not away."""


def push_wanted(home_root: Path, carry_out: CarryOut, acting: Executor, tell: Callable[[str], None]) -> None:
    """Sends what the home wants to be sent, as long as there is something. Only one process at a time does.

    What people ask of its trials is done meanwhile, by `acting`, which has one thread. `tell` is told what goes wrong.
    """
    while wanted_pushes(home_root):
        try:
            lock = AliveLock(pusher_lock(home_root))
        except (BlockingIOError, FileNotFoundError):
            return
        try:
            home = Home(home_root)
            following = Following(home, hands=Hands(home, carry_out, acting))
            following.run(lambda: wanted_pushes(home_root), lambda record: end_push(home_root, record), tell)
        finally:
            lock.release()
        # What was named meanwhile has started a pusher that found the lock held.


class Following:
    """Sends trials to their workspaces. Only one thread may use it."""

    def __init__(
        self,
        home: Home,
        *,
        with_checkpoints: bool = False,
        every_s: float = _EVERY_S,
        longest_pause_s: float = _LONGEST_PAUSE_S,
        hands: Hands | None = None,
    ) -> None:
        self._home = home
        self._hands = hands
        self._with_checkpoints = with_checkpoints
        self._every_s = every_s
        self._longest_pause_s = longest_pause_s
        self._lines: dict[str, _Line] = {}
        self._searches = GoingSearches(home)

    def run(
        self,
        wanted: Callable[[], Sequence[PushRecord]],
        done: Callable[[PushRecord], object],
        tell: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """Sends the trials that are `wanted`, and says which are `done`, until none is wanted and nobody asks."""
        while (records := wanted()) or self._heard():
            for workspace in {record.workspace for record in records} | self._heard():
                if workspace not in self._lines:
                    self._lines[workspace] = self._line(workspace)
                line = self._lines[workspace]
                if line.due <= time.monotonic():
                    for record in self._push(line, [each for each in records if each.workspace == workspace], tell):
                        done(record)
            # While all servers are away there is nothing to look for but what is wanted of another one.
            away_s = min((line.due for line in self._lines.values()), default=0.0) - time.monotonic()
            time.sleep(max(self._every_s if records else _IDLE_S, min(away_s, _LOOK_S)))

    def pushed(self) -> list[tuple[str, Pushed]]:
        """Returns what was sent to each workspace."""
        return [(workspace, line.pusher.pushed) for workspace, line in self._lines.items()]

    def _push(self, line: _Line, records: Sequence[PushRecord], tell: Callable[[str], None]) -> list[PushRecord]:
        """Sends what there is of these trials, and returns those that are over, of which this was all."""
        # Asked before anything is read, so that all is read of a trial that is over.
        over = [record for record in records if self._is_over(record.trial_id)]
        goes_on = self._searches.carriers(record.trial_id for record in over)
        over = [record for record in over if record.trial_id not in goes_on]
        try:
            line.pusher.push([record.trial_id for record in records])
        except (CoreSDKError, OSError) as error:
            line.pause_s = min(self._longest_pause_s, 2 * line.pause_s or self._every_s)
            # Many homes come back at once when a server does.
            line.due = time.monotonic() + line.pause_s * random.uniform(0.7, 1.0)
            if str(error) != line.problem:
                tell(str(error))
            line.problem = str(error)
            if isinstance(error, WorkspaceRefusedError):  # perhaps somebody has logged in again since
                line.pusher.use(self._connection(line.workspace))
            return []
        if line.problem:
            tell(f"the workspace {line.workspace} takes records again")
        line.pause_s, line.problem = 0.0, ""
        for problem in line.pusher.pushed.problems[line.num_told :]:
            tell(problem)
        line.num_told = len(line.pusher.pushed.problems)
        for record in over:
            line.pusher.forget(record.trial_id)
        return over

    def _heard(self) -> set[str]:
        """Returns the workspaces that are heard without anything to send."""
        return set() if self._hands is None else self._hands.workspaces()

    def _is_over(self, trial_id: int) -> bool:
        folder = self._home.folder(trial_id)
        with contextlib.suppress(OSError):
            return folder.running_attempt() is None and not folder.living_writers()
        return True  # it was deleted

    def _line(self, workspace: str) -> _Line:
        connection = self._connection(workspace)
        pusher = Pusher(self._home, connection, with_checkpoints=self._with_checkpoints, hands=self._hands)
        return _Line(workspace, pusher)

    def _connection(self, workspace: str) -> WorkspaceConnection:
        found = find_login(workspace, WorkspaceSettings.read())
        return WorkspaceConnection(found.url, found.token)


class _Line:
    """The way to one workspace."""

    def __init__(self, workspace: str, pusher: Pusher) -> None:
        self.workspace = workspace
        self.pusher = pusher
        self.pause_s = 0.0
        """The last pause, while the workspace is away."""
        self.due = 0.0
        """The time of `time.monotonic` from which on it is asked again."""
        self.problem = ""
        self.num_told = 0
