"""Carries out what people ask of a home in its workspaces: each request at most once, by the home's own records."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from core_sdk._home.folders import Home
from core_sdk._home.pushes import ActionRequest, ActionRequests, find_login, have_pushed, pusher_lock
from core_sdk._workspace.wire import HandedRequest, ToldOutcome, TrialKey
from core_sdk.errors import CoreSDKError, RecordDamagedError

_STAYS_S = 86400.0

CarryOut = Callable[[Home, int, str, str, Mapping[str, Any]], Any]
"""Does a verb to a trial: its id, the verb, the words that say by whom, and the arguments. Returns JSON.

Raises the reason if that is not possible.
"""


class Hands:
    """Carries out requests in order, by an executor with one thread. Only the process with the pusher's lock may."""

    def __init__(self, home: Home, carry_out: CarryOut, acting: Executor) -> None:
        self._home = home
        self._carry_out = carry_out
        self._requests = ActionRequests(home.root)
        self._acting = acting
        self._untold: dict[str, tuple[str, int]] = {}
        """The workspace and the trial of each request that was taken, and whose outcome was not told yet."""
        self._heard: dict[str, float] = {}
        """When each workspace has asked last."""
        with contextlib.suppress(RecordDamagedError):  # then no request is taken
            for request in self._requests.all():
                if request.outcome is None:
                    words = "the process that carried it out was killed meanwhile: look whether it is done"
                    self._requests.settle(request.request_id, "refused", words, None)

    def workspaces(self) -> set[str]:
        """Returns the workspaces that are to be heard, though nothing is sent: those that have asked within a day.

        So a trial that was paused from afar can be resumed from there.
        """
        if not pusher_lock(self._home.root).exists():  # the home is removed
            return set()
        now = time.monotonic()
        return {workspace for workspace, heard in self._heard.items() if now - heard < _STAYS_S}

    def outcomes(self, handed: Sequence[HandedRequest]) -> list[ToldOutcome]:
        """Returns the outcomes that are known of these requests. Raises `RecordDamagedError`."""
        wanted = {one.request_id for one in handed}
        return [
            ToldOutcome(one.request_id, one.outcome, one.message, one.answer)
            for one in self._requests.all()
            if one.request_id in wanted and one.outcome is not None
        ]

    def take(self, workspace: str, handed: Sequence[HandedRequest]) -> None:
        """Begins what a workspace asks, if it is new. Raises `RecordDamagedError`."""
        known = {one.request_id for one in self._requests.all()}
        if handed:  # also those that are done, of which the workspace is told with the next sign of life
            self._heard[workspace] = time.monotonic()
        for one in handed:
            if one.request_id in known:
                continue
            trial_id = self._trial_of(one.trial)
            noted = ActionRequest(
                request_id=one.request_id, trial_id=trial_id or 0, verb=one.verb, by=one.by, time=time.time()
            )
            if self._requests.add(noted) is not noted:
                continue  # another one asks for the same, and is under way
            self._untold[one.request_id] = workspace, noted.trial_id
            if not find_login(workspace).takes_actions:
                words = f"whoever trains on {socket.gethostname()} takes no actions from afar (`core-sdk login`)"
                self._requests.settle(one.request_id, "refused", words, None)
            elif trial_id is None:
                self._requests.settle(one.request_id, "refused", "the home has no such trial any more", None)
            else:
                self._acting.submit(self._do, noted, f"{one.by}, in {workspace}", one.arguments)

    def told(self, outcomes: Sequence[ToldOutcome]) -> None:
        """Notes that a workspace knows these outcomes. Their trials are sent, since they may have changed."""
        for one in outcomes:
            workspace, trial_id = self._untold.pop(one.request_id, ("", 0))
            if trial_id:
                have_pushed(self._home.folder(trial_id), workspace)

    def _do(self, request: ActionRequest, by: str, arguments: Mapping[str, Any]) -> None:
        try:
            answer = self._carry_out(self._home, request.trial_id, request.verb, by, arguments)
        except Exception as error:  # noqa: BLE001  (whatever it is, who has asked is told)
            self._requests.settle(request.request_id, "refused", str(error) or type(error).__name__, None)
        else:
            self._requests.settle(request.request_id, "done", "", answer)

    def _trial_of(self, key: TrialKey) -> int | None:
        """Returns the trial of the home that has this key: mostly the one that has had its first id ever since."""
        for trial_id in (key.first_id, *self._home.trial_ids()):
            with contextlib.suppress(CoreSDKError, OSError):
                if TrialKey.of(self._home.folder(trial_id).read_record()) == key:
                    return trial_id
        return None
