"""Has a workspace do something, from a command or the client."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from core_sdk._home.pushes import find_login
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk.errors import WorkspaceRequestError

_WAIT_S = 60.0
_PAUSE_S = 0.2


class _Requests(msgspec.Struct):
    requests: list[dict[str, Any]]


def call_workspace(
    address: str, path: str, ids: Mapping[str, object], arguments: Mapping[str, Any], wait_s: float = _WAIT_S
) -> Any:
    """Does a verb in a workspace. Returns its answer, as JSON, if the home that has sent the trial has done it.

    Raises `WorkspaceError`, or `WorkspaceRequestError` if that home refuses it, or is not heard within `wait_s`.
    """
    found = find_login(address)
    named = {name: quote(str(one), safe="") for name, one in ids.items()}
    with WorkspaceConnection(found.url, found.token) as connection:
        done = connection.act(path.format(**named).lstrip("/"), arguments)
        if not (request_id := done.get("request_id")):
            return done.get("answer")
        deadline = time.monotonic() + wait_s
        trial_id = done["trial_id"]
        while True:
            known = connection.get(f"trials/{trial_id}/requests", _Requests).requests
            request = next(one for one in known if one["request_id"] == request_id)
            if request["outcome"] == "done":
                return request["answer"]
            if request["outcome"] == "refused":
                raise WorkspaceRequestError(int(str(trial_id)), request["verb"], request["message"])
            if time.monotonic() > deadline:
                raise WorkspaceRequestError(int(str(trial_id)), request["verb"], f"it waits: {done['message']}")
            time.sleep(_PAUSE_S)
