"""Asks the home that has sent a trial to do something to it. Nothing is done on the server itself.

What a trial is started with is in the records that came from elsewhere, so that a writer could have made it up. The
home that has sent the trial has its own records, and carries out what is asked by these.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

from core_sdk._home import Home
from core_sdk._home.folders import Ownership
from core_sdk._home.pushes import ActionRequest, ActionRequests
from core_sdk._workspace.actions.asker import Asker, present_asker
from core_sdk._workspace.numbering import number_of
from core_sdk._workspace.wire import HandedRequest, SignOfLife, TrialKey
from core_sdk.errors import CoreSDKError, RecordDamagedError, WorkspaceRequestError

_ID_BYTES = 8


def ask_home(home: Home, trial_id: int, verb: str, arguments: Mapping[str, Any], asker: Asker) -> ActionRequest:
    """Keeps a request to the home that has sent the trial, and returns it; one that is open already stays the only one.

    Raises `WorkspaceRequestError` if no home has sent the trial, `PermissionError` unless the asker's program has sent
    it or they own the workspace, and `TrialNotFoundError`.
    """
    if (number := number_of(home, trial_id)) is None:
        raise WorkspaceRequestError(trial_id, verb, "no home has sent it")
    if not asker.is_owner and asker.name != number.person:
        raise PermissionError(f"trial {trial_id} was sent by {number.person}")
    request = ActionRequest(
        request_id=secrets.token_hex(_ID_BYTES),
        trial_id=trial_id,
        verb=verb,
        by=asker.name,
        time=time.time(),
        arguments=dict(arguments),
        home=number.home,
        sender=number.person,
    )
    return ActionRequests(home.root).add(request)


def newest_sent(home: Home, experiment_id: int) -> int | None:
    """Returns the newest trial of an experiment that another home carries out, by which that home knows it.

    It is None for an experiment that none does. Raises `ExperimentNotFoundError` or `RecordDamagedError`.
    """
    numbers = home.experiment(experiment_id).numbers_here() or {}
    return max((number for number in numbers.values() if home.folder(number).exists()), default=None)


class HandedRequests:
    """Gives the requests of a workspace to the homes that are to carry them out. Any thread may call it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._requests = ActionRequests(home.root)

    def hear(self, sign: SignOfLife) -> list[HandedRequest]:
        """Keeps the outcomes that a home tells, and returns its open requests. Raises `OSError`."""
        try:
            return self._heard(sign) if sign.home else []
        except RecordDamagedError:  # whoever asks next is told so
            return []

    def _heard(self, sign: SignOfLife) -> list[HandedRequest]:
        ownership, person = Ownership(sign.home, sign.adopted), present_asker().name

        def is_for_asker(request: ActionRequest) -> bool:
            return request.sender == person and ownership.covers(request.home)

        told = {one.request_id: one for one in sign.outcomes}
        for request in self._requests.all():
            if (one := told.get(request.request_id)) is not None and is_for_asker(request):
                self._requests.settle(one.request_id, one.outcome, one.message, one.answer)
        handed = []
        for request in self._requests.all():
            if request.state == "waits" and is_for_asker(request):
                with contextlib.suppress(CoreSDKError):  # the trial was deleted here meanwhile
                    key = TrialKey.of(self._home.trial(request.trial_id).read_record())
                    handed.append(HandedRequest(request.request_id, key, request.verb, request.by, request.arguments))
        return handed
